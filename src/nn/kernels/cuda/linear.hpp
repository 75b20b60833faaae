// Which products of a GPU do more than multiply? Those of 16 bits whose neighbours read their
// result only once.
#pragma once

#include "nn/kernels/activation.hpp"

namespace colossal::kernels::cuda {

/// Lent to each product by cuBLASLt: what a Hopper card wants.
inline constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20U;

/// Whether a layer act(x W^T + b) of this input takes linear_gelu(): 16 bits on a GPU, gelu_tanh,
/// and rows of whole packs of 16 bytes, without which libraries have no such kernels.
[[nodiscard]] bool fuses_gelu(const at::Tensor& x_mi,
                              const at::Tensor& weight_fi,
                              ActivationKind kind);

/// What linear_gelu returns.
struct LinearGelu {
  at::Tensor y_mf;
  at::Tensor pre_mf;  ///< before the activation, bias included
};

/// gelu_tanh(x W^T + b) in one kernel. Requires fuses_gelu().
[[nodiscard]] LinearGelu linear_gelu(const at::Tensor& x_mi,
                                     const at::Tensor& weight_fi,
                                     const at::Tensor& bias_f);

/// Whether linear_gelu_backward() gives y_mf again without a pass over pre_mf, where the layer that
/// reads y_mf is as wide as x.
[[nodiscard]] bool rebuilds_gelu(const at::Tensor& x_mi, const at::Tensor& weight_fi);

/// The gradient of linear_gelu's pre_mf in one kernel with the product before it: g W times the
/// slope of gelu_tanh at pre_mf; its sums over rows where they cost no pass, else undefined. W [o,
/// f] is that of the layer that read y_mf, g_mo the gradient of its result. If y_mf is given, it
/// becomes gelu_tanh(pre_mf), which may take the memory of pre_mf: nobody may read that after.
[[nodiscard]] BiasActGrad linear_gelu_backward(const at::Tensor& g_mo,
                                               const at::Tensor& weight_of,
                                               const at::Tensor& pre_mf,
                                               at::Tensor* y_mf = nullptr);

/// a b; sums in fp32 for 16 bits.
[[nodiscard]] at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn);

/// bias + a b, rounded once.
[[nodiscard]] at::Tensor product(const at::Tensor& bias_n,
                                 const at::Tensor& a_mk,
                                 const at::Tensor& b_kn);

/// Whether product_onto() takes these: 16 bits on a GPU in whole packs.
[[nodiscard]] bool fuses_residual(const at::Tensor& residual_mo,
                                  const at::Tensor& x_mi,
                                  const at::Tensor& weight_oi);

/// residual + bias + a b, rounded once; bias_n may be undefined. Requires fuses_residual().
[[nodiscard]] at::Tensor product_onto(const at::Tensor& residual_mn,
                                      const at::Tensor& bias_n,
                                      const at::Tensor& a_mk,
                                      const at::Tensor& b_kn);

/// grad_oi += g^T x in one kernel, or grad_oi = g^T x where it is_unwritten(), if 16 bits are
/// multiplied and grad_oi is of their dtype or fp32. False, with nothing done, for others. Counts
/// as a change of grad_oi for autograd.
[[nodiscard]] bool add_weight_gradient(const at::Tensor& grad_oi,
                                       const at::Tensor& g_mo,
                                       const at::Tensor& x_mi);

}  // namespace colossal::kernels::cuda
