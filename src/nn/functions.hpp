// Which differentiable operations are layers made of? Plain functions; each is one node of the
// autograd graph around the kernels of nn/kernels and ATen's matrix products.
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/dropout.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace colossal {

/// What a node does not keep of its work, for its users and itself to have it computed once more in
/// backward, bit for bit: nothing, its output, or (layers with a product) also that product.
enum class Rebuild : std::uint8_t { nothing, output, product };

/// y_bso = x_bsi W^T + b; with `activation`, act(y). W [out, in]; bias may be undefined without an
/// activation. `activation`: gelu, gelu_tanh, relu. Without one, `rebuild` is nothing or product.
/// Up to kernels::kFewRows rows without autograd: a row's result does not depend, bit for bit, on
/// the others.
[[nodiscard]] at::Tensor linear(const at::Tensor& x_bsi,
                                const at::Tensor& weight_oi,
                                const at::Tensor& bias_o,
                                std::optional<ActivationKind> activation = std::nullopt,
                                Rebuild rebuild = Rebuild::nothing);

/// residual_bso + linear(x_bsi), in one kernel where 16 bits of a GPU are in whole packs.
[[nodiscard]] at::Tensor linear_onto(const at::Tensor& residual_bso,
                                     const at::Tensor& x_bsi,
                                     const at::Tensor& weight_oi,
                                     const at::Tensor& bias_o,
                                     Rebuild rebuild = Rebuild::nothing);

/// Sizes of one linear() call.
struct LinearSize {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = false;  ///< which the product adds; one before an activation is added behind it
};

/// Bytes that linear() without activation takes at most beside its result: none on a GPU, whose
/// libraries share gpu_workspace_bytes().
[[nodiscard]] std::int64_t linear_forward_bytes(const LinearSize& size,
                                                at::ScalarType dtype,
                                                at::Device device);

/// Bytes that its backward takes at most beside what was kept and the gradient of its output:
/// gradients of input and weight among them.
[[nodiscard]] std::int64_t linear_backward_bytes(const LinearSize& size,
                                                 at::ScalarType dtype,
                                                 at::Device device);

/// Bytes that products hold on a GPU beside all tensors of a model, whatever its size: a workspace
/// each of forward's and of backward's thread for those of torch (fp32, fp64, and those of 16 bits
/// if `torch_too`), one for those with a bias in fp32, and one for ours of 16 bits. As on cards of
/// compute capability 9.0, where torch takes the most.
[[nodiscard]] std::int64_t gpu_workspace_bytes(at::ScalarType dtype, bool torch_too);

/// Rows of weight_rh by index. Gradients of equal indices are added in fp32 at least.
[[nodiscard]] at::Tensor embedding(const at::Tensor& weight_rh, const at::Tensor& indices);

/// {LayerNorm(x), x}: the start of a residual branch. Who goes on with the second result in place
/// of x gets the sum of both gradients from one pass.
[[nodiscard]] std::pair<at::Tensor, at::Tensor> layer_norm_fork(const at::Tensor& x_bsh,
                                                                const at::Tensor& weight_h,
                                                                const at::Tensor& bias_h,
                                                                double eps,
                                                                Rebuild rebuild = Rebuild::nothing);

/// residual + dropout(x), see kernels::dropout. `residual` may be undefined.
[[nodiscard]] at::Tensor keyed_dropout(const at::Tensor& x,
                                       const at::Tensor& residual,
                                       const kernels::DropoutKey& key);

/// silu(gate) * up.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate,
                                const at::Tensor& up,
                                Rebuild rebuild = Rebuild::nothing);

/// softmax(q k^T / sqrt(head_dim) + mask) v of a packed qkv, see kernels::attention_forward:
/// probabilities are never stored. starts_bs may be undefined. Returns context_bsh.
[[nodiscard]] at::Tensor attention(const at::Tensor& qkv_bsd,
                                   const kernels::AttentionShape& shape,
                                   const at::Tensor& starts_bs = {},
                                   Rebuild rebuild = Rebuild::nothing);

/// Scalar sum over labelled tokens of the cross entropy (fp32 for 16 bits), see
/// kernels::token_loss. Consumes logits_bsv: where a gradient is wanted they are overwritten by it,
/// so nobody may use them after. `rule.factor`: the gradient that this sum will get, where it is
/// known already; then backward does not pass over the logits again.
[[nodiscard]] at::Tensor token_loss(const at::Tensor& logits_bsv,
                                    const at::Tensor& labels_bs,
                                    std::int64_t vocabulary,
                                    const LossRule& rule = {});

/// How head_loss() goes through its tokens.
struct LossParts {
  std::int64_t chunk_rows = 0;  ///< tokens whose logits exist at a time
  LossRule rule;                ///< with a factor
};

/// token_loss(linear(x_bsh, weight_vh), labels_bs) whose logits exist for some tokens at a time:
/// the gradients of x and of the weight, the latter summed in fp32 at least, are computed with
/// them, and kept for backward. Only where a gradient is wanted.
[[nodiscard]] at::Tensor head_loss(const at::Tensor& x_bsh,
                                   const at::Tensor& weight_vh,
                                   const at::Tensor& labels_bs,
                                   std::int64_t vocabulary,
                                   const LossParts& parts);

}  // namespace colossal
