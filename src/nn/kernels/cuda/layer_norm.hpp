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

/// The same; the gradients of weight and bias are given (give_column_sums()) to these tensors, and
/// the sums of the result, the gradient of x, are remembered (remember_column_sums()).
[[nodiscard]] at::Tensor give_layer_norm_backward(const at::Tensor& grad_mh,
                                                  const LayerNormSaved& saved,
                                                  const at::Tensor& residual_mh,
                                                  const at::Tensor& weight_gradient_h,
                                                  const at::Tensor& bias_gradient_h);

}  // namespace colossal::kernels::cuda
