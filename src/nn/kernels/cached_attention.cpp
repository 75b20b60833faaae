// Attention of new tokens over cached ones, vectorised over keys for scores and over the head for
// values.
#include "nn/kernels/cached_attention.hpp"

#include "nn/kernels/cuda/cached_attention.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/vector_math.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace colossal::kernels {

namespace {

/// One k, v head of one row: its new tokens and its part of the cache.
template <class T>
struct Part {
  const T* q;  // of the first of `group` q heads
  const T* k;
  const T* v;
  std::int64_t token;  // distance of two tokens in q, k, v
  T* keys;             // [head_dim][capacity]
  T* values;           // [capacity][head_dim]
  std::int64_t capacity;
  std::int64_t length;  // tokens in the cache
  std::int64_t added;   // new tokens
  std::int64_t head_dim;
  std::int64_t group;
  T scale;
  T* scores;   // [capacity]
  T* context;  // of the first q head; new token i at context + i * context_token
  std::int64_t context_token;
};

template <class T>
[[gnu::always_inline]] inline void append(const Part<T>& p) {
  for (std::int64_t i = 0; i < p.added; ++i) {
    const T* const k = p.k + i * p.token;
    for (std::int64_t d = 0; d < p.head_dim; ++d) {
      p.keys[d * p.capacity + p.length + i] = k[d];
    }
    std::copy_n(p.v + i * p.token, p.head_dim, p.values + (p.length + i) * p.head_dim);
  }
}

/// p.scores[j] = scale * (q . key j) for j < visible.
template <class T>
[[gnu::always_inline]] inline void score(const Part<T>& p, const T* q, std::int64_t visible) {
  T* __restrict scores = p.scores;
  std::fill_n(scores, visible, T{0});
  for (std::int64_t d = 0; d < p.head_dim; ++d) {
    const T* __restrict keys = p.keys + d * p.capacity;
    const T scaled = q[d] * p.scale;
    for (std::int64_t j = 0; j < visible; ++j) {
      scores[j] += scaled * keys[j];
    }
  }
}

/// context = softmax(scores) values.
template <class T>
[[gnu::always_inline]] inline void mix(const Part<T>& p,
                                       std::int64_t visible,
                                       T* __restrict context) {
  T* __restrict scores = p.scores;
  T top = scores[0];
#pragma omp simd reduction(max : top)
  for (std::int64_t j = 0; j < visible; ++j) {
    top = scores[j] > top ? scores[j] : top;
  }
  for (std::int64_t j = 0; j < visible; ++j) {
    scores[j] = vector_exp(scores[j] - top);
  }
  T sum = 0;
  std::fill_n(context, p.head_dim, T{0});
  for (std::int64_t j = 0; j < visible; ++j) {
    const T* __restrict values = p.values + j * p.head_dim;
    const T weight = scores[j];
    sum += weight;
    for (std::int64_t d = 0; d < p.head_dim; ++d) {
      context[d] += weight * values[d];
    }
  }
  const T inverse = T{1} / sum;
  for (std::int64_t d = 0; d < p.head_dim; ++d) {
    context[d] *= inverse;
  }
}

template <class T>
[[gnu::always_inline]] inline void attend_part(const Part<T>& p) {
  append(p);
  for (std::int64_t i = 0; i < p.added; ++i) {
    for (std::int64_t g = 0; g < p.group; ++g) {
      const std::int64_t visible = p.length + i + 1;
      score(p, p.q + i * p.token + g * p.head_dim, visible);
      mix(p, visible, p.context + i * p.context_token + g * p.head_dim);
    }
  }
}

// One entry per dtype: target_clones works on plain functions only, and fp64 needs no vectors.

COLOSSAL_FMA_CLONES void attend(const Part<float>& p) {
  attend_part(p);
}
void attend(const Part<double>& p) {
  attend_part(p);
}

/// The work of one call: rows x k, v heads.
template <class T>
void attend_all(const at::Tensor& qkv_bsd,
                const AttentionShape& shape,
                const CacheRows& cache,
                const at::Tensor& context_bsh) {
  const std::int64_t tokens = qkv_bsd.size(1);
  const std::int64_t width = qkv_bsd.size(2);
  const std::int64_t d = shape.head_dim;
  const std::int64_t kv = shape.num_kv_heads;
  const std::int64_t group = shape.num_heads / kv;
  const std::int64_t hidden = shape.num_heads * d;
  const std::int64_t capacity = cache.keys.size(3);
  const T* const qkv = qkv_bsd.const_data_ptr<T>();
  T* const keys = cache.keys.mutable_data_ptr<T>();
  T* const values = cache.values.mutable_data_ptr<T>();
  T* const context = context_bsh.mutable_data_ptr<T>();
  const auto scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(d)));
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> scores(static_cast<std::size_t>(capacity));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / kv;
      const std::int64_t m = i % kv;
      const auto at = static_cast<std::size_t>(row);
      const std::int64_t kept = (cache.slots[at] * kv + m) * d * capacity;
      const T* const first = qkv + row * tokens * width;
      attend({first + m * group * d,
              first + hidden + m * d,
              first + hidden + (kv + m) * d,
              width,
              keys + kept,
              values + kept,
              capacity,
              cache.lengths[at],
              tokens,
              d,
              group,
              scale,
              scores.data(),
              context + row * tokens * hidden + m * group * d,
              hidden});
    }
  };
  const std::int64_t longest = *std::ranges::max_element(cache.lengths) + tokens;
  parallel_rows(qkv_bsd.size(0) * kv, 2 * longest * tokens * group * d, run);
}

}  // namespace

at::Tensor cached_attention(const at::Tensor& qkv_bsd,
                            const AttentionShape& shape,
                            const CacheRows& cache) {
  if (qkv_bsd.is_cuda()) {
    return cuda::cached_attention(qkv_bsd, shape, cache);
  }
  const std::int64_t hidden = shape.num_heads * shape.head_dim;
  at::Tensor context_bsh = at::empty({qkv_bsd.size(0), qkv_bsd.size(1), hidden}, qkv_bsd.options());
  with_wide(qkv_bsd, [&]<class T>(T) { attend_all<T>(qkv_bsd, shape, cache, context_bsh); });
  return context_bsh;
}

}  // namespace colossal::kernels
