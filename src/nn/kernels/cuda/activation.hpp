// Nonlinearities on a GPU; contracts as in nn/kernels/activation.hpp.
#pragma once

#include "nn/kernels/activation.hpp"

namespace colossal::kernels::cuda {

/// kernels::bias_act_forward on a GPU; here bias_f may be undefined: pre_mf has it already.
[[nodiscard]] at::Tensor bias_act_forward(const at::Tensor& pre_mf,
                                          const at::Tensor& bias_f,
                                          ActivationKind kind);
/// kernels::bias_act_backward on a GPU, bias_f as above; rows are summed in an order that depends
/// on the shape only.
[[nodiscard]] BiasActGrad bias_act_backward(const at::Tensor& grad_mf,
                                            const at::Tensor& pre_mf,
                                            const at::Tensor& bias_f,
                                            ActivationKind kind);
/// kernels::swiglu_forward on a GPU.
[[nodiscard]] at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up);
/// kernels::swiglu_backward on a GPU.
[[nodiscard]] SwigluGrad swiglu_backward(const at::Tensor& grad,
                                         const at::Tensor& gate,
                                         const at::Tensor& up);

}  // namespace colossal::kernels::cuda
