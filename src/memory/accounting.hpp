// How many bytes does a chunk plan need of each kind, and how many does it move? Computed from the
// plan alone; the run is compared with it.
#pragma once

#include "memory/chunk_plan.hpp"
#include "memory/store_options.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace colossal {

/// Bytes of one rank, and what its collectives are handed in one step.
struct ChunkBytes {
  std::int64_t weights = 0;    ///< device: parameters that stay, and masters that are parameters
  std::int64_t grads = 0;      ///< device
  std::int64_t optimizer = 0;  ///< device: separate masters and states
  std::int64_t borrowed = 0;   ///< device, at most: gathered weights and whole gradients at once
  std::int64_t host = 0;       ///< masters, states, gradients and weights in host memory
  std::int64_t nvme = 0;       ///< states on disk

  std::int64_t all_reduced = 0;       ///< whole gradients
  std::int64_t reduce_scattered = 0;  ///< whole gradients
  std::int64_t gathered = 0;          ///< this rank's part of weights
};

/// What an accounting starts from.
struct AccountingInput {
  const ChunkPlan& plan;
  const StoreOptions& options;
  std::span<const std::vector<int>> chunks_of_blocks;  ///< in forward order
  std::int64_t num_states = 0;                         ///< of the optimizer
  std::int64_t micro_batches = 1;                      ///< of one step
  std::int64_t device_bytes = 0;  ///< size of the device, for ChunkPlan::measured; 0: unknown
};

/// Of a step like the second one: forward through all blocks, backward in reverse. Under
/// ChunkPlan::measured the budget is only known when the first step was measured: `borrowed` is
/// then what blocks need at least.
[[nodiscard]] ChunkBytes account(const AccountingInput& input, const Mesh& mesh);

/// Chunks that each block uses; tied parameters count as their owner.
[[nodiscard]] std::vector<std::vector<int>> chunks_of_blocks(
    const ChunkPlan& plan,
    std::span<const ParamSpec> params,
    std::span<const std::vector<int>> blocks);

}  // namespace colossal
