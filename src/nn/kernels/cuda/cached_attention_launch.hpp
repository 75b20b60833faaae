// Which launch function continues cached sequences?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

inline constexpr int kCacheRows = 64;  ///< rows of one launch

/// Arrays of one launch, fp32 or fp64.
struct CachedAttention {
  const void* qkv = nullptr;  ///< [rows, tokens, (num_heads + 2 num_kv_heads) head_dim]
  void* keys = nullptr;       ///< [slots, num_kv_heads, head_dim, capacity]
  void* values = nullptr;     ///< [slots, num_kv_heads, capacity, head_dim]
  void* context = nullptr;    ///< [rows, tokens, num_heads head_dim]
  std::int64_t rows = 0;      ///< kCacheRows at most
  std::int64_t tokens = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t capacity = 0;
  std::int64_t slots[kCacheRows] = {};
  std::int64_t lengths[kCacheRows] = {};
};

/// Adds the new keys and values to the cache, then computes the context of the new tokens.
cudaError_t launch_cached_attention(ElementType type,
                                    const CachedAttention& args,
                                    cudaStream_t stream);

}  // namespace colossal::kernels::cuda
