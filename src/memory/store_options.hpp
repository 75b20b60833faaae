// In which data types does a store keep and reduce, and what does it do about gradients that never
// come?
#pragma once

#include "config/config.hpp"
#include "memory/chunk_plan.hpp"
#include "memory/nvme_file.hpp"

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace colossal {

/// Choices of a ChunkStore beside its plan.
struct StoreOptions {
  bool training = true;                 ///< false: no gradients and no optimizer states
  at::ScalarType compute = at::kFloat;  ///< parameters
  at::ScalarType master = at::kFloat;   ///< what optimizers update: the wider of fp32 and `compute`
  at::ScalarType grad = at::kFloat;     ///< gradients accumulated over micro-batches
  at::ScalarType reduce = at::kFloat;   ///< gradients while they are summed over ranks
  at::ScalarType state = at::kFloat;    ///< optimizer states
  bool overlap = true;                  ///< reductions and gathers run while blocks compute
  std::optional<NvmeOptions> nvme =
      {};  ///< where ChunkSpec::states_on_disk is; the rank is filled in
  bool unused_is_zero =
      false;  ///< a parameter without gradient in a step: zero instead of an error
  /// Where gradients stay whole until the update: their memory comes when backward reaches a chunk,
  /// in place of activations that have gone, and goes when the next step begins. False: it stays.
  bool lend_grads = false;
};

/// How many reductions may be under way at a time: few where each holds memory of its own, a whole
/// gradient of ChunkPlan::shard_grads or a copy in another dtype.
[[nodiscard]] std::int64_t max_reducing(const ChunkPlan& plan, const StoreOptions& options);

/// The options that a resolved configuration asks for.
[[nodiscard]] StoreOptions store_options(const Config& config);

}  // namespace colossal
