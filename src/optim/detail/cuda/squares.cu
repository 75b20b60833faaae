// Squares of gradients at the speed of memory: a block takes 2^16 elements of one array, a thread
// 16 bytes at a time; squares of fp16 are added in fp32 within those, all others in fp64: those of
// bf16 can exceed fp32.
#include "optim/detail/cuda/squares_launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace colossal::detail::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kAtOnce = 8;  // reads of a thread that are under way together

__device__ inline double square(double x) {
  return x * x;
}
__device__ inline double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}
__device__ inline double square(__nv_bfloat16 x) {
  return square(__bfloat162float(x));
}
__device__ inline float square(__half x) {
  return __half2float(x) * __half2float(x);
}

template <class S>
struct alignas(16) Vector {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(S));
  S at[kCount];
};

template <class S>
__device__ inline double squares(const Vector<S>& x) {
  auto sum = square(x.at[0]);
  for (int i = 1; i < Vector<S>::kCount; ++i) {
    sum += square(x.at[i]);
  }
  return static_cast<double>(sum);
}

/// Squares of this thread's share of data[0, count), of which whole vectors begin at `data`.
template <class S>
__device__ inline double own_squares(const S* data, std::int64_t count) {
  constexpr int kCount = Vector<S>::kCount;
  double sum = 0;
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
      sum += static_cast<double>(square(data[i]));
    }
    return sum;
  }
  const std::int64_t vectors = count / kCount;
  const auto* const from = reinterpret_cast<const Vector<S>*>(data);
#pragma unroll kAtOnce
  for (std::int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    sum += squares(from[i]);
  }
  for (std::int64_t i = vectors * kCount + threadIdx.x; i < count; i += kThreads) {
    sum += static_cast<double>(square(data[i]));
  }
  return sum;
}

/// Sum over the block, in thread 0.
__device__ inline double block_sum(double x) {
  __shared__ double shared[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = x;
  }
  __syncthreads();
  double total = 0;
  for (int w = 0; threadIdx.x == 0 && w < kThreads / kWarp; ++w) {
    total += shared[w];
  }
  return total;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const __grid_constant__ SquaresBatch batch) {
  int p = 0;
  while (blockIdx.x >= batch.first_block[p + 1]) {
    ++p;
  }
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x - batch.first_block[p]) * kSquaresBlock;
  const std::int64_t left = batch.parts[p].count - begin;
  const double total = block_sum(own_squares(static_cast<const S*>(batch.parts[p].data) + begin,
                                             left < kSquaresBlock ? left : kSquaresBlock));
  if (threadIdx.x == 0) {
    batch.partial[blockIdx.x] = total;
  }
}

/// A block a part.
__global__ void __launch_bounds__(kThreads) add_kernel(const __grid_constant__ SquaresBatch batch) {
  double sum = 0;
  for (unsigned b = batch.first_block[blockIdx.x] + threadIdx.x;
       b < batch.first_block[blockIdx.x + 1];
       b += kThreads) {
    sum += batch.partial[b];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    batch.sums[blockIdx.x] = sum;
  }
}

template <class S>
cudaError_t start(const SquaresBatch& batch, cudaStream_t stream) {
  const unsigned blocks = batch.first_block[batch.num_parts];
  if (blocks > 0) {
    squares_kernel<S><<<blocks, kThreads, 0, stream>>>(batch);
  }
  add_kernel<<<static_cast<unsigned>(batch.num_parts), kThreads, 0, stream>>>(batch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_squares_of(const SquaresBatch& batch, cudaStream_t stream) {
  switch (batch.kind) {
    case Kind::bf16:
      return start<__nv_bfloat16>(batch, stream);
    case Kind::fp16:
      return start<__half>(batch, stream);
    case Kind::wide:
      return batch.fp64 ? start<double>(batch, stream) : start<float>(batch, stream);
    case Kind::none:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace colossal::detail::cuda
