// Which block sums which part of a matrix? Kernels that sum columns on their way share this plan.
#pragma once

#include "nn/kernels/cuda/element.cuh"

namespace colossal::kernels::cuda {

inline constexpr int kColumnThreads = 32;  // threads beside each other: one pack of columns each
inline constexpr int kRowThreads = 8;      // rows that a block takes at a time
inline constexpr int kColumnBlocks = 4;    // blocks that a processor has room for

/// Blocks side by side for a width, if each thread takes `pack` columns.
__host__ __device__ inline std::int64_t column_blocks(std::int64_t width, int pack) {
  const std::int64_t columns = static_cast<std::int64_t>(kColumnThreads) * pack;
  return (width + columns - 1) / columns;
}

/// Blocks below each other: the device filled once, 4 rows a thread at least. Counted for packs of
/// 16 bytes whatever the alignment, so that sums have one order.
inline std::int64_t row_blocks(std::int64_t rows, std::int64_t width, int pack) {
  constexpr std::int64_t kBlocks = 132 * kColumnBlocks;
  const std::int64_t most = (rows + 4 * kRowThreads - 1) / (4 * kRowThreads);
  const std::int64_t beside = column_blocks(width, pack);
  const std::int64_t wanted = kBlocks / beside;
  const std::int64_t blocks = wanted < most ? wanted : most;
  return blocks < 1 ? 1 : blocks;
}

/// Calls f(row) for the rows of this thread, of which kAtOnce are read before one is used. The last
/// row comes first: a product that has just written the matrix left its end in cache.
template <int kAtOnce, class F>
__device__ inline void for_rows(std::int64_t rows, const F& f) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kRowThreads;
#pragma unroll kAtOnce
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.y) * kRowThreads + threadIdx.y; r < rows;
       r += step) {
    f(rows - 1 - r);
  }
}

/// Adds the sums of the kRowThreads rows of threads and writes those of the block: `sums` are the
/// thread's own, of columns [column, column + N). All threads of the block call it.
template <int N, class T>
__device__ inline void store_block_sums(const T (&sums)[N],
                                        std::int64_t column,
                                        std::int64_t width,
                                        T* partial_f) {
  __shared__ T shared[kRowThreads][N][kColumnThreads];
  for (int i = 0; i < N; ++i) {
    shared[threadIdx.y][i][threadIdx.x] = sums[i];
  }
  __syncthreads();
  if (threadIdx.y != 0) {
    return;
  }
  for (int i = 0; i < N; ++i) {
    T total = 0;
    for (int y = 0; y < kRowThreads; ++y) {
      total += shared[y][i][threadIdx.x];
    }
    if (column + i < width) {
      partial_f[column + i] = total;
    }
  }
}

}  // namespace colossal::kernels::cuda
