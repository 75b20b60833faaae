// How is LayerNorm computed? One pass over each row forward; one pass backward that also adds the
// gradient of the residual connection around the normalised branch.
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal::kernels {

/// The result and what backward needs of it, one value a row (fp32 for 16 bits).
struct LayerNormResult {
  at::Tensor y_mh;
  at::Tensor mean_m;
  at::Tensor rstd_m;  ///< 1 / sqrt(variance + eps), variance biased
};

/// (x - mean) * rstd * weight + bias over rows of x_mh. All contiguous, of one floating
/// dtype.
[[nodiscard]] LayerNormResult layer_norm_forward(const at::Tensor& x_mh,
                                                 const at::Tensor& weight_h,
                                                 const at::Tensor& bias_h,
                                                 double eps);

/// What layer_norm_backward needs from the forward pass; refers to the caller's tensors.
struct LayerNormSaved {
  const at::Tensor& x_mh;
  const at::Tensor& weight_h;
  const at::Tensor& mean_m;
  const at::Tensor& rstd_m;
};

/// What layer_norm_backward returns, named after the inputs.
struct LayerNormGrad {
  at::Tensor x_mh;
  at::Tensor weight_h;  ///< fp32 for 16 bits: a sum over rows
  at::Tensor bias_h;    ///< the same
};

/// Gradients of layer_norm_forward for the gradient `grad_mh` of y; `residual_mh` (undefined: none)
/// is added to that of x.
[[nodiscard]] LayerNormGrad layer_norm_backward(const at::Tensor& grad_mh,
                                                const LayerNormSaved& saved,
                                                const at::Tensor& residual_mh);

}  // namespace colossal::kernels
