// Which gradient of gelu_tanh comes out of the product before it with its sums over rows?
#pragma once

#include "nn/kernels/activation.hpp"

namespace colossal::kernels::cuda {

/// g W times the slope of gelu_tanh at pre_mf, as linear_gelu_backward() returns it, and its sums
/// over rows, in one kernel of our own, whose order of additions depends on the shape only. Both
/// undefined where it does not run: other dtypes than bf16, strides, rows of broken packs of 16
/// bytes, devices of another compute capability than 9.0, products too small to fill one. With
/// `activates`, gelu_tanh of pre_mf takes its place where it runs.
[[nodiscard]] BiasActGrad gelu_gradient(const at::Tensor& g_mo,
                                        const at::Tensor& weight_of,
                                        const at::Tensor& pre_mf,
                                        bool activates = false);

/// Whether it runs for the layer after act(x W^T), if that is as wide as x.
[[nodiscard]] bool takes_gelu_gradient(const at::Tensor& x_mi, const at::Tensor& weight_fi);

}  // namespace colossal::kernels::cuda
