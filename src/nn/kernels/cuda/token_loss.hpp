// Cross entropy on a GPU; contracts as in nn/kernels/token_loss.hpp.
#pragma once

#include "nn/kernels/token_loss.hpp"

namespace colossal::kernels::cuda {

/// kernels::token_loss as a scalar tensor of fp32 (fp64 for fp64) on the device of the logits,
/// without waiting for it; sums over rows are taken in fp64. A label outside the vocabulary cannot
/// be reported from here: its row's loss and gradient are NaN, so that the step's loss is.
[[nodiscard]] at::Tensor token_loss(at::Tensor& logits_mv,
                                    const at::Tensor& labels_m,
                                    std::int64_t vocabulary,
                                    std::optional<double> grad_factor);

/// grad *= factor / expected, where `factor` is a scalar tensor of the device; rounded once. Memory
/// is not touched where both are equal, which only the device knows.
void scale_loss_grad(at::Tensor& grad, const at::Tensor& factor, double expected);

}  // namespace colossal::kernels::cuda
