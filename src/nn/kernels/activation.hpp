// How are nonlinearities computed? One pass forward (bias added on the way), one pass backward
// (bias gradient summed on the way).
#pragma once

#include "config/config.hpp"

#include <ATen/core/Tensor.h>

namespace colossal::kernels {

/// act(pre_mf + bias_f), m rows. `kind`: gelu, gelu_tanh or relu. All contiguous, of one floating
/// dtype; 16 bits are computed in fp32 and rounded once.
[[nodiscard]] at::Tensor bias_act_forward(const at::Tensor& pre_mf,
                                          const at::Tensor& bias_f,
                                          ActivationKind kind);

/// What bias_act_backward returns, named after the inputs.
struct BiasActGrad {
  at::Tensor pre_mf;
  at::Tensor bias_f;  ///< fp32 for 16 bits: a sum over rows
};

/// Gradients of bias_act_forward for the gradient `grad_mf` of its result.
[[nodiscard]] BiasActGrad bias_act_backward(const at::Tensor& grad_mf,
                                            const at::Tensor& pre_mf,
                                            const at::Tensor& bias_f,
                                            ActivationKind kind);

/// silu(gate) * up, element by element.
[[nodiscard]] at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up);

/// What swiglu_backward returns, named after the inputs.
struct SwigluGrad {
  at::Tensor gate;
  at::Tensor up;
};

/// Gradients of swiglu_forward.
[[nodiscard]] SwigluGrad swiglu_backward(const at::Tensor& grad,
                                         const at::Tensor& gate,
                                         const at::Tensor& up);

}  // namespace colossal::kernels
