// How many bytes does a chunk plan need of each kind, and how many does it move? Computed from the
// plan alone; the run is compared with it.
#pragma once

#include "memory/chunk_plan.hpp"
#include "memory/host_bytes.hpp"
#include "memory/store_options.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace colossal {

/// How far a plan may be from the peak that its run measures, as a share of it: the limit to which
/// tests hold all examples (README, "Estimate against measurement").
inline constexpr double kPlanError = 0.05;

/// Bytes of one rank, and what its collectives are handed in one step.
struct ChunkBytes {
  std::int64_t weights = 0;    ///< device: parameters that stay, and masters that are parameters
  std::int64_t grads = 0;      ///< device; of lent ones those at the fullest moment
  std::int64_t optimizer = 0;  ///< device: separate masters and states
  std::int64_t borrowed = 0;   ///< device, at the fullest moment of a step: gathered weights, whole
                               ///< gradients and what reductions or the update hold
  std::int64_t activations = 0;  ///< device, at that moment
  HostBytes host = {};           ///< at the start; no `inputs`, which the store does not hold
  std::int64_t moved = 0;  ///< of `host`: what ChunkPlan::measured moves to the device after a step
  std::int64_t nvme = 0;   ///< on disk, which has one category: states
  /// What a budget of gathered weights has beside what the neediest block needs; below 0: the run
  /// ends with "budget-too-small". Unset: there is no budget, or its size is unknown.
  std::optional<std::int64_t> slack = {};

  std::int64_t all_reduced = 0;       ///< whole gradients
  std::int64_t reduce_scattered = 0;  ///< whole gradients
  std::int64_t gathered = 0;          ///< this rank's part of weights
};

/// Bytes of a micro-batch while a block runs, beside what the store holds.
struct BlockActivations {
  std::int64_t forward = 0;   ///< at most during its forward
  std::int64_t backward = 0;  ///< at most during its backward
  std::int64_t after = 0;     ///< when its backward has ended
  std::int64_t again = 0;     ///< at most while it runs again, with the gradient that waits for it
  int runs_again_from =
      -1;  ///< before its backward the blocks from this one on run again; -1: none
};

/// What an accounting starts from.
struct AccountingInput {
  const ChunkPlan& plan;
  const StoreOptions& options;
  std::span<const std::vector<int>> chunks_of_blocks;  ///< in forward order
  std::int64_t num_states = 0;                         ///< of the optimizer
  std::int64_t micro_batches = 1;                      ///< of one step
  std::span<const BlockActivations> activations = {};  ///< of each block; empty: none
  std::int64_t other_bytes = 0;                        ///< held all the time beside the store
  std::int64_t device_bytes = 0;      ///< size of the device, for ChunkPlan::measured; 0: unknown
  std::int64_t evaluation_bytes = 0;  ///< at most during evaluation, one block at a time
  std::int64_t update_bytes = 0;      ///< that an update on the device takes there for a while
  bool host_apart = false;            ///< the device is a GPU, whose memory is not the host's
};

/// Of a step like the second one: forward through all blocks, backward in reverse. Under
/// ChunkPlan::measured the decision of the first step is made from its play; while the device's
/// size is unknown, `borrowed` is what blocks need at least.
[[nodiscard]] ChunkBytes account(const AccountingInput& input, const Mesh& mesh);

/// Chunks that each block uses; tied parameters count as their owner.
[[nodiscard]] std::vector<std::vector<int>> chunks_of_blocks(
    const ChunkPlan& plan,
    std::span<const ParamSpec> params,
    std::span<const std::vector<int>> blocks);

}  // namespace colossal
