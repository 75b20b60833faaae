// How do a few new tokens attend to all tokens before them? Their keys and values join a cache; the
// scores of old queries are never computed again.
#pragma once

#include "nn/kernels/attention.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace colossal::kernels {

/// Where the keys and values of the rows of a batch are kept. Row r uses slot slots[r], which holds
/// lengths[r] tokens; capacity is the last dim of `keys`. No two rows share a slot.
struct CacheRows {
  const at::Tensor& keys;    ///< [slots, num_kv_heads, head_dim, capacity], contiguous
  const at::Tensor& values;  ///< [slots, num_kv_heads, capacity, head_dim], contiguous
  std::span<const std::int64_t> slots;
  std::span<const std::int64_t> lengths;
};

/// Writes keys and values of the S new tokens of each row behind its old ones, and returns
/// context_bsh: causal attention of new token i of row r over lengths[r] + i + 1 tokens. qkv_bsd
/// contiguous, fp32 or fp64, the dtype of the cache. A row's result does not depend, bit for bit,
/// on the other rows. Gradients: none. The caller has checked that the tokens fit.
[[nodiscard]] at::Tensor cached_attention(const at::Tensor& qkv_bsd,
                                          const AttentionShape& shape,
                                          const CacheRows& cache);

}  // namespace colossal::kernels
