// Which product gives gelu_tanh's input and result at once?
#pragma once

#include "nn/kernels/cuda/linear.hpp"

namespace colossal::kernels::cuda {

/// linear_gelu() in one kernel of our own, whose order of additions depends on the shape only. Both
/// undefined where it does not run: other dtypes than bf16, strides, rows of broken packs of 16
/// bytes, devices of another compute capability than 9.0, products too small to fill one.
[[nodiscard]] LinearGelu gelu_product(const at::Tensor& x_mi,
                                      const at::Tensor& weight_fi,
                                      const at::Tensor& bias_f);

}  // namespace colossal::kernels::cuda
