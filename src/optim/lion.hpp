// Which optimizer takes steps of one length in every element? Lion, which keeps one moment only.
#pragma once

#include "optim/detail/cuda/sweeps.hpp"
#include "optim/optimizer.hpp"

#include <memory>
#include <span>

namespace colossal {

/// Lion (optimizers-and-recipes 1): u = sign(b1 m + (1-b1) g), then m = b2 m + (1-b2) g;
/// w -= lr (u + wd w). State exp_avg (m). One pass over memory. Source: Chen et al. 2023, "Symbolic
/// discovery of optimization algorithms". Errors: config "betas-count"; sweep(): internal
/// "optimizer-state", "optimizer-dtype".
[[nodiscard]] std::unique_ptr<Optimizer> make_lion(const OptimizerConfig& config);

namespace detail {

/// The update of slices by tensor operations, for shards of a GPU: the bits of lion(). `device`: of
/// their memory.
void lion_on_tensors(const cuda::Sweep& sweep,
                     std::span<const LionFactors> factors,
                     at::DeviceType device);

}  // namespace detail
}  // namespace colossal
