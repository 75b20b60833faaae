// How does a kernel of a GPU read and write elements? In packs of 16 bytes where rows are aligned,
// one by one where they are not; it computes in fp32 (fp64 for fp64) and rounds once.
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// What a kernel computes in for elements of type S.
template <class S>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <class S>
using Wide = typename WideOf<S>::Type;

__device__ inline float load(float x) {
  return x;
}
__device__ inline double load(double x) {
  return x;
}
__device__ inline float load(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float load(__half x) {
  return __half2float(x);
}

/// x as an element of type S, rounded to nearest even.
template <class S>
__device__ inline S store(Wide<S> x);
template <>
__device__ inline float store<float>(float x) {
  return x;
}
template <>
__device__ inline double store<double>(double x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 store<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half store<__half>(float x) {
  return __float2half_rn(x);
}

/// N elements that are read or written by one instruction (two, if they take 32 bytes).
template <class S, int N>
struct alignas(sizeof(S) * N > 16 ? 16 : sizeof(S) * N) Pack {
  S at[N];
};

/// Elements of a pack of 16 bytes.
template <class S>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(S));

template <int N, class S>
__device__ inline Pack<S, N> load_pack(const S* from) {
  return *reinterpret_cast<const Pack<S, N>*>(from);
}
template <int N, class S>
__device__ inline void store_pack(S* to, const Pack<S, N>& pack) {
  *reinterpret_cast<Pack<S, N>*>(to) = pack;
}

/// Whether all pointers (null ones are) start at a multiple of 16 bytes.
template <class... P>
inline bool aligned(const P*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Calls f(S{}) for the type.
template <class F>
cudaError_t with_type(ElementType type, const F& f) {
  switch (type) {
    case ElementType::fp32:
      return f(float{});
    case ElementType::fp64:
      return f(double{});
    case ElementType::bf16:
      return f(__nv_bfloat16{});
    case ElementType::fp16:
      return f(__half{});
  }
  return cudaErrorInvalidValue;
}

/// The same for kernels that know no 16 bits.
template <class F>
cudaError_t with_wide(ElementType type, const F& f) {
  switch (type) {
    case ElementType::fp32:
      return f(float{});
    case ElementType::fp64:
      return f(double{});
    default:
      return cudaErrorInvalidValue;
  }
}

inline constexpr int kWarp = 32;

/// Sum over a warp, the same in every lane.
template <class T>
__device__ inline T warp_sum(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  return x;
}

/// Largest of a warp, the same in every lane; NaN if one is.
template <class T>
__device__ inline T warp_max(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xFFFFFFFFU, x, offset);
    x = other > x || other != other ? other : x;
  }
  return x;
}

/// Blocks that fill the device some times over, but not more than there is work for.
inline unsigned grid_of(std::int64_t most) {
  constexpr std::int64_t kFull = 132 * 16;
  const std::int64_t blocks = most < kFull ? most : kFull;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks);
}

}  // namespace colossal::kernels::cuda
