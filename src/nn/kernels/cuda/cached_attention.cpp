// Which slots does a launch continue? Their numbers travel with it: nothing is copied to the device
// before.
#include "nn/kernels/cuda/cached_attention.hpp"

#include "nn/kernels/cuda/cached_attention_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace colossal::kernels::cuda {

at::Tensor cached_attention(const at::Tensor& qkv_bsd,
                            const AttentionShape& shape,
                            const CacheRows& cache) {
  const std::int64_t rows = qkv_bsd.size(0);
  const std::int64_t hidden = shape.num_heads * shape.head_dim;
  at::Tensor context_bsh = at::empty({rows, qkv_bsd.size(1), hidden}, qkv_bsd.options());
  for (std::int64_t first = 0; first < rows; first += kCacheRows) {
    const std::int64_t count = std::min<std::int64_t>(kCacheRows, rows - first);
    CachedAttention args{.qkv = qkv_bsd.narrow(0, first, count).const_data_ptr(),
                         .keys = cache.keys.mutable_data_ptr(),
                         .values = cache.values.mutable_data_ptr(),
                         .context = context_bsh.narrow(0, first, count).mutable_data_ptr(),
                         .rows = count,
                         .tokens = qkv_bsd.size(1),
                         .num_heads = shape.num_heads,
                         .num_kv_heads = shape.num_kv_heads,
                         .head_dim = shape.head_dim,
                         .capacity = cache.keys.size(3)};
    std::copy_n(cache.slots.begin() + first, count, args.slots);
    std::copy_n(cache.lengths.begin() + first, count, args.lengths);
    check_launch(launch_cached_attention(wide_element_type(qkv_bsd), args, stream_of(qkv_bsd)),
                 "cached_attention");
  }
  return context_bsh;
}

}  // namespace colossal::kernels::cuda
