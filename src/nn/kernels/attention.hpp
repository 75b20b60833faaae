// How is attention computed without storing probabilities? Backward computes them again from the
// log-sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// Shape of a packed qkv_bsd: q heads, then k heads, then v heads on the last dim. Each k, v head
/// serves num_heads / num_kv_heads q heads.
struct AttentionShape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
};

/// q [B,n,S,d], k and v [B,m,S,d]: views of a packed tensor.
struct QkvViews {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

/// The heads of qkv_bsd, without a copy.
[[nodiscard]] QkvViews split_heads(const at::Tensor& qkv_bsd, const AttentionShape& shape);

/// What forward returns: context and what backward needs of it.
struct AttentionResult {
  at::Tensor context_bsh;  ///< h = num_heads * head_dim
  at::Tensor log_sum;  ///< log of the sum of exp(scores) of each head and query; fp32 for 16 bits
};

/// Whether a GPU computes it by products of whole matrices around a softmax, for want of a kernel:
/// wide dtypes, documents, head sizes that are odd or large.
[[nodiscard]] bool attends_by_products(const AttentionShape& shape,
                                       at::ScalarType dtype,
                                       bool documents);

/// softmax(q k^T / sqrt(head_dim) + mask) v. qkv_bsd contiguous; 16 bits are computed
/// in fp32 and rounded at the end. With starts_bs
/// ("document_starts" of Batch, contiguous), which needs a causal shape, query i sees the keys from
/// starts_bs[i] to i only; blocks of keys that no query sees are not computed.
[[nodiscard]] AttentionResult attention_forward(const at::Tensor& qkv_bsd,
                                                const AttentionShape& shape,
                                                const at::Tensor& starts_bs = {});

/// Gradient of qkv_bsd for the contiguous gradient of the context. Source: Dao et al. 2022,
/// algorithm 4.
[[nodiscard]] at::Tensor attention_backward(const at::Tensor& grad_bsh,
                                            const at::Tensor& qkv_bsd,
                                            const AttentionResult& forward,
                                            const AttentionShape& shape,
                                            const at::Tensor& starts_bs = {});

}  // namespace colossal::kernels
