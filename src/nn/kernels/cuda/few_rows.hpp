// Products of a few rows on a GPU; contract as in nn/kernels/few_rows.hpp.
#pragma once

#include "nn/kernels/few_rows.hpp"

namespace colossal::kernels::cuda {

/// kernels::linear_few_rows on a GPU.
[[nodiscard]] at::Tensor linear_few_rows(const at::Tensor& x_mi,
                                         const at::Tensor& weight_oi,
                                         const at::Tensor& bias_o);

}  // namespace colossal::kernels::cuda
