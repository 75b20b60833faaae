// Sums of columns in two stages.
#include "nn/kernels/cuda/columns.cuh"
#include "nn/kernels/cuda/columns_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

template <class S, int N>
__global__ void column_kernel(const S* x, std::int64_t rows, std::int64_t width, Wide<S>* partial) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * N;
  Wide<S> sums[N] = {};
  for_rows(column < width ? rows : 0, [&](std::int64_t r) {
    const Pack<S, N> pack = load_pack<N>(x + r * width + column);
    for (int i = 0; i < N; ++i) {
      sums[i] += load(pack.at[i]);
    }
  });
  store_block_sums<N>(sums, column, width, partial + blockIdx.y * width);
}

constexpr int kAddRows = 32;  // rows of threads that add partial sums

/// A column of threads a column: each adds every kAddRows-th partial row, then those sums are
/// added.
template <class T>
__global__ void __launch_bounds__(kColumnThreads* kAddRows)
    add_kernel(const T* partial, std::int64_t rows, std::int64_t width, T* out) {
  __shared__ T shared[kAddRows][kColumnThreads];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  T sum = 0;
  if (column < width) {
#pragma unroll 8
    for (std::int64_t r = threadIdx.y; r < rows; r += kAddRows) {
      sum += partial[r * width + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) {
    return;
  }
  for (int y = 1; y < kAddRows; ++y) {
    sum += shared[y][threadIdx.x];
  }
  out[column] = sum;
}

template <class S, int N>
void start(const ColumnSums& sums, unsigned parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(column_blocks(sums.width, N)), parts);
  column_kernel<S, N><<<grid, dim3(kColumnThreads, kRowThreads), 0, stream>>>(
      static_cast<const S*>(sums.x_mf),
      sums.rows,
      sums.width,
      static_cast<Wide<S>*>(sums.partial_pf));
}

}  // namespace

std::int64_t column_parts(std::int64_t rows, std::int64_t width, ElementType type) {
  const int bytes = type == ElementType::fp64 ? 8 : type == ElementType::fp32 ? 4 : 2;
  return row_blocks(rows, width, 16 / bytes);
}

cudaError_t launch_add_parts(ElementType type,
                             const void* partial_pf,
                             std::int64_t rows,
                             std::int64_t width,
                             void* out_f,
                             cudaStream_t stream) {
  if (width == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    using T = Wide<S>;
    const auto blocks = static_cast<unsigned>((width + kColumnThreads - 1) / kColumnThreads);
    add_kernel<T><<<blocks, dim3(kColumnThreads, kAddRows), 0, stream>>>(
        static_cast<const T*>(partial_pf), rows, width, static_cast<T*>(out_f));
    return cudaGetLastError();
  });
}

cudaError_t launch_column_sums(ElementType type, const ColumnSums& sums, cudaStream_t stream) {
  if (sums.width == 0) {
    return cudaSuccess;
  }
  const std::int64_t parts = column_parts(sums.rows, sums.width, type);
  const cudaError_t first = with_type(type, [&]<class S>(S) {
    const bool packs = sums.width % kPack<S> == 0 && aligned(sums.x_mf);
    packs ? start<S, kPack<S>>(sums, static_cast<unsigned>(parts), stream)
          : start<S, 1>(sums, static_cast<unsigned>(parts), stream);
    return cudaGetLastError();
  });
  return first != cudaSuccess
             ? first
             : launch_add_parts(type, sums.partial_pf, parts, sums.width, sums.out_f, stream);
}

}  // namespace colossal::kernels::cuda
