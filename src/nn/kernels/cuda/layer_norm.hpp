// LayerNorm on a GPU; contracts as in nn/kernels/layer_norm.hpp.
#pragma once

#include "nn/kernels/layer_norm.hpp"

namespace colossal::kernels::cuda {

/// kernels::layer_norm_forward on a GPU.
[[nodiscard]] LayerNormResult layer_norm_forward(const at::Tensor& x_mh,
                                                 const at::Tensor& weight_h,
                                                 const at::Tensor& bias_h,
                                                 double eps);
/// kernels::layer_norm_backward on a GPU; rows are summed in an order that depends on the shape
/// only.
[[nodiscard]] LayerNormGrad layer_norm_backward(const at::Tensor& grad_mh,
                                                const LayerNormSaved& saved,
                                                const at::Tensor& residual_mh);

}  // namespace colossal::kernels::cuda
