// How do threads of a GPU read and write four elements of a flat array of any kind? As one vector
// where it is aligned and whole; conversions are those of half_kernels.hpp, bit for bit.
#pragma once

#include "optim/detail/cuda/sweeps_launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace colossal::detail::cuda {

/// Elements of one group.
inline constexpr int kGroup = 4;

template <class S>
struct alignas(sizeof(S) * kGroup > 16 ? 16 : sizeof(S) * kGroup) Four {
  S at[kGroup];
};

/// Elements [at, at + 4) of the shard, of which those in [begin, end) belong to the slice.
struct Group {
  std::int64_t at;
  std::int64_t begin;
  std::int64_t end;
  bool whole;  ///< all belong, and arrays are aligned

  __device__ bool has(int i) const { return at + i >= begin && at + i < end; }
};

__device__ inline float widen(float x) {
  return x;
}
__device__ inline double widen(double x) {
  return x;
}
__device__ inline float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float widen(__half x) {
  return __half2float(x);
}

template <class S, class T>
__device__ inline void read_as(const void* data, const Group& group, T (&out)[kGroup]) {
  const S* const from = static_cast<const S*>(data) + group.at;
  if (group.whole) {
    const Four<S> four = *reinterpret_cast<const Four<S>*>(from);
    for (int i = 0; i < kGroup; ++i) {
      out[i] = static_cast<T>(widen(four.at[i]));
    }
    return;
  }
  for (int i = 0; i < kGroup; ++i) {
    out[i] = group.has(i) ? static_cast<T>(widen(from[i])) : T(0);
  }
}

/// Zeros of an array that is not there.
template <class T>
__device__ inline void read(const FlatArray& array, const Group& group, T (&out)[kGroup]) {
  switch (array.kind) {
    case Kind::wide:
      return read_as<T>(array.data, group, out);
    case Kind::bf16:
      return read_as<__nv_bfloat16>(array.data, group, out);
    case Kind::fp16:
      return read_as<__half>(array.data, group, out);
    case Kind::none:
      for (int i = 0; i < kGroup; ++i) {
        out[i] = T(0);
      }
  }
}

template <class S>
__device__ inline void write_as(void* data, const Group& group, const S (&values)[kGroup]) {
  S* const to = static_cast<S*>(data) + group.at;
  if (group.whole) {
    Four<S> four;
    for (int i = 0; i < kGroup; ++i) {
      four.at[i] = values[i];
    }
    *reinterpret_cast<Four<S>*>(to) = four;
    return;
  }
  for (int i = 0; i < kGroup; ++i) {
    if (group.has(i)) {
      to[i] = values[i];
    }
  }
}

/// Writes values rounded to nearest; an array that is not there is no work.
template <class T>
__device__ inline void write(const FlatArray& array,
                             const Group& group,
                             const T (&values)[kGroup]) {
  if (array.kind == Kind::wide) {
    write_as<T>(array.data, group, values);
  } else if (array.kind == Kind::bf16) {
    __nv_bfloat16 rounded[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      rounded[i] = __float2bfloat16_rn(static_cast<float>(values[i]));
    }
    write_as<__nv_bfloat16>(array.data, group, rounded);
  } else if (array.kind == Kind::fp16) {
    __half rounded[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      rounded[i] = __float2half_rn(static_cast<float>(values[i]));
    }
    write_as<__half>(array.data, group, rounded);
  }
}

/// The word of RandomWords for an element.
__device__ inline std::uint32_t random_word(std::uint32_t key, std::uint32_t element) {
  std::uint32_t x = element * 0x9E3779B1U + key;
  x = (x ^ (x >> 16U)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13U)) * 0xC2B2AE35U;
  return x ^ (x >> 16U);
}

/// Writes a state: bf16 is rounded at random, and what was written stays in `values`. `slice` and
/// `shift` as RandomWords has them.
template <class T>
__device__ inline void write_state(const FlatArray& array,
                                   const Group& group,
                                   const FlatSlice& slice,
                                   std::uint32_t shift,
                                   T (&values)[kGroup]) {
  if (array.kind != Kind::bf16) {
    write(array, group, values);
    return;
  }
  std::uint16_t halves[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    const auto element = slice.element + static_cast<std::uint32_t>(group.at + i - group.begin);
    const std::uint32_t word = random_word(slice.key, element) >> shift & 0xFFFFU;
    const std::uint32_t bits = __float_as_uint(static_cast<float>(values[i]));
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t quiet = magnitude > 0x7F800000U ? 0x40U : 0U;  // of a NaN
    const std::uint32_t half =
        magnitude >= 0x7F800000U ? bits >> 16U | quiet : (bits + word) >> 16U;
    halves[i] = static_cast<std::uint16_t>(half);
    values[i] = static_cast<T>(__uint_as_float(half << 16U));
  }
  write_as<std::uint16_t>(array.data, group, halves);
}

}  // namespace colossal::detail::cuda
