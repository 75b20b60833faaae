// How do the threads of a team walk over their row, pack by pack?
#pragma once

#include "nn/kernels/cuda/team.cuh"

namespace colossal::kernels::cuda {

/// Calls f(k, column) for the columns of this thread's k-th pack of a row.
template <int N, class F>
__device__ inline void for_packs(std::int64_t hidden, const F& f) {
  int k = 0;
  for (std::int64_t column = threadIdx.x * N; column < hidden; column += blockDim.x * N) {
    f(k++, column);
  }
}

/// The same with the number of packs known, so that arrays indexed by k stay in registers.
template <int N, int kHeld, class F>
__device__ inline void for_held(std::int64_t hidden, const F& f) {
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const std::int64_t column = (static_cast<std::int64_t>(k) * blockDim.x + threadIdx.x) * N;
    if (column < hidden) {
      f(k, column);
    }
  }
}

}  // namespace colossal::kernels::cuda
