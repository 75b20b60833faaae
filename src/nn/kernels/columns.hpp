// How are gradients of rows added to the gradient of a bias?
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal::kernels {

/// Sum over the rows of x_mf, in fp32 for 16 bits.
[[nodiscard]] at::Tensor column_sums(const at::Tensor& x_mf);

}  // namespace colossal::kernels
