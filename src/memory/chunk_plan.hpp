// Which bytes live where? Decided once, before any memory exists, by a pure planner
// (architecture 5.7).
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"
#include "mesh/layout.hpp"
#include "nn/parameter.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// A kind of memory. On a cpu device, device memory is what run.device_memory limits; host memory
/// is outside of it.
enum class Tier : std::uint8_t { device, host, nvme };

/// One flat buffer of parameters that are gathered, reduced and moved together.
struct ChunkSpec {
  std::vector<int>
      params;  ///< indices into the parameter list, in buffer order; tied ones are not listed
  std::vector<std::int64_t> offsets;  ///< element offset of each, multiples of kChunkAlignment
  std::int64_t numel = 0;             ///< length with padding; every rank's part is equally long
  AxisSet reduce_axes;                ///< gradients are summed over these
  AxisSet shard_axes;  ///< reduce_axes if each of their ranks owns one part of the chunk, else none
  bool resident = true;            ///< the compute parameters are whole on every rank all the time
  Tier param_home = Tier::device;  ///< of this rank's part, where the chunk is not resident
  Tier optim_home = Tier::device;  ///< of masters, states and the summed gradient
  bool states_on_disk = false;     ///< the states alone are on disk (Tier::nvme)
};

inline constexpr std::int64_t kChunkAlignment = 64;  ///< elements

/// Shares of the device for a plan that is finished by measuring a step (gemini.placement auto).
struct MeasuredBudget {
  double steady_ratio = 0.9;  ///< used after the first step
  double margin_ratio = 0.8;  ///< of what is then free, given to optimizer states
  double reserve = 0.05;      ///< stays free
};

/// Share of the device that such a plan may use after its first step.
[[nodiscard]] double usable_share(const MeasuredBudget& budget);

/// All chunks of a rank's stage, and how they move.
struct ChunkPlan {
  std::vector<ChunkSpec>
      chunks;                ///< in order of the last use in backward: the first is reduced first
  bool shard_grads = false;  ///< gradients are summed into the owner's part after each micro-batch,
                             ///< and their full buffers exist only meanwhile
  std::int64_t prefetch = 0;  ///< blocks gathered ahead
  /// Bytes of gathered chunks that may stay after use; unset: every chunk is dropped after each
  /// block.
  std::optional<std::int64_t> cache_bytes = {};
  std::optional<MeasuredBudget> measured =
      {};  ///< homes follow from the first step, cache_bytes from the first of each lasting length
};

/// Elements of a rank's part of the chunk.
[[nodiscard]] std::int64_t part_numel(const ChunkSpec& chunk, const Mesh& mesh);

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
      0;                        ///< target length of a chunk; a larger parameter gets its own chunk
  std::int64_t item_bytes = 4;  ///< of a compute parameter
  ZeroConfig zero = {};
  GeminiConfig gemini = {};
};

/// Table by memory policy: zero.stage "0" to "3" and gemini.placement.
[[nodiscard]] const Registry<ChunkPlanner, const ChunkPlannerRequest&>& chunk_planners();

/// Name of the policy that a configuration asks for.
[[nodiscard]] std::string memory_policy(const ParallelConfig& parallel);

/// Where a chunk length is searched, in elements.
struct ChunkSearch {
  std::int64_t min_numel = 0;
  std::int64_t range = 0;
  std::int64_t interval = 1024;
};

/// The chunk length with the least waste when parameters of these lengths are packed next-fit:
/// the first best of start, start + interval, ..., up to start + range (zero-gemini-elixir 4.3).
/// Lengths above the mean by more than three standard deviations get chunks of their own and do not
/// take part. All in elements.
[[nodiscard]] std::int64_t search_chunk_numel(std::span<const std::int64_t> lengths,
                                              const ChunkSearch& search);
/// Elements left unused by next-fit packing into chunks of `chunk_numel`.
[[nodiscard]] std::int64_t packing_waste(std::span<const std::int64_t> lengths,
                                         std::int64_t chunk_numel);

/// Target chunk length in bytes for a model of this many bytes: small enough that several
/// reductions overlap with backward.
[[nodiscard]] std::int64_t default_chunk_bytes(std::int64_t model_bytes);

}  // namespace colossal
