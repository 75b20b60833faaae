// Attention over cached tokens on a GPU; contract as in nn/kernels/cached_attention.hpp.
#pragma once

#include "nn/kernels/cached_attention.hpp"

namespace colossal::kernels::cuda {

/// kernels::cached_attention on a GPU.
[[nodiscard]] at::Tensor cached_attention(const at::Tensor& qkv_bsd,
                                          const AttentionShape& shape,
                                          const CacheRows& cache);

}  // namespace colossal::kernels::cuda
