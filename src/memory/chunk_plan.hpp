// Which bytes live where? Decided once, before any memory exists, by a pure planner
// (architecture 5.7).
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"
#include "mesh/layout.hpp"
#include "nn/parameter.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// One flat buffer of parameters that are reduced (later: gathered, moved) together.
struct ChunkSpec {
  std::vector<int>
      params;  ///< indices into the parameter list, in buffer order; tied ones are not listed
  std::vector<std::int64_t> offsets;  ///< element offset of each, multiples of kChunkAlignment
  std::int64_t numel = 0;             ///< length with padding
  AxisSet reduce_axes;                ///< gradients are summed over these
};

inline constexpr std::int64_t kChunkAlignment = 64;  ///< elements

/// All chunks of a rank's stage.
struct ChunkPlan {
  std::vector<ChunkSpec>
      chunks;  ///< in order of the last use in backward: the first is reduced first
};

/// The parameters of some blocks as planners want them: each once, in order of first use.
struct ParamUses {
  std::vector<Parameter*> parameters;
  std::vector<ParamSpec> specs;          ///< of `parameters`
  std::vector<std::vector<int>> blocks;  ///< indices that each block uses
};

/// Lists what blocks use; `blocks[i]`: the parameters of block i, in forward order.
[[nodiscard]] ParamUses list_uses(std::span<const std::vector<Parameter*>> blocks);

/// For each parameter the index of the one whose memory it uses: itself unless it is tied. Errors:
/// internal "param-duplicate" (two of one name), "tied-owner" (no such parameter, or itself tied),
/// "tied-shape".
[[nodiscard]] std::vector<int> owner_indices(std::span<const ParamSpec> params);

/// Makes the chunk plan of one memory policy. Pure.
class ChunkPlanner {
 public:
  virtual ~ChunkPlanner() = default;
  /// `params`: all parameters of this rank's stage in forward order of first use. `blocks[i]`:
  /// indices used by block i. A use of a tied parameter is a use of its owner. Errors: internal
  /// "param-unused" for a parameter of no block.
  [[nodiscard]] virtual ChunkPlan plan(std::span<const ParamSpec> params,
                                       std::span<const std::vector<int>> blocks,
                                       const Mesh& mesh) const = 0;
};

/// What a planner factory gets.
struct ChunkPlannerRequest {
  std::int64_t chunk_bytes =
      0;  ///< target length of a chunk; a larger parameter gets its own chunk
  std::int64_t item_bytes = 4;
};

/// Table by policy: "replicated" (every rank holds everything; gradients are all-reduced).
[[nodiscard]] const Registry<ChunkPlanner, const ChunkPlannerRequest&>& chunk_planners();

/// Target chunk length in bytes for a model of this many bytes: small enough that several
/// reductions overlap with backward.
[[nodiscard]] std::int64_t default_chunk_bytes(std::int64_t model_bytes);

}  // namespace colossal
