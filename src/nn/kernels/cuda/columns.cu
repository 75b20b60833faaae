// Sums of columns in two stages.
#include "nn/kernels/cuda/columns.cuh"
#include "nn/kernels/cuda/columns_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

template <class S>
struct Matrix {
  const S* x;
  const Wide<S>* factor;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t stride;
};

template <bool kFactors, class S, int N>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads, kColumnBlocks)
    column_kernel(Matrix<S> a, Wide<S>* partial) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * N;
  Wide<S> sums[N] = {};
  for_rows<8>(column < a.width ? a.rows : 0, [&](std::int64_t r) {
    const Pack<S, N> pack = load_pack<N>(a.x + r * a.stride + column);
    const Wide<S> factor = kFactors ? a.factor[r] : Wide<S>(1);
    for (int i = 0; i < N; ++i) {
      sums[i] += kFactors ? factor * load(pack.at[i]) : load(pack.at[i]);
    }
  });
  store_block_sums<N>(sums, column, a.width, partial + blockIdx.y * a.width);
}

constexpr int kAddRows = 32;  // rows of threads that add partial sums

template <class S, class T>
__device__ inline void put_as(const ColumnTarget& to, std::int64_t column, T sum) {
  S* const out = static_cast<S*>(to.out) + column;
  const T before = to.adds ? static_cast<T>(load(*out)) : T(0);
  *out = store<S>(static_cast<Wide<S>>(before + sum));
}

template <class T>
__device__ inline void put(const ColumnTarget& to, std::int64_t column, T sum) {
  switch (to.type) {
    case ElementType::fp32:
      return put_as<float>(to, column, sum);
    case ElementType::fp64:
      return put_as<double>(to, column, sum);
    case ElementType::bf16:
      return put_as<__nv_bfloat16>(to, column, sum);
    case ElementType::fp16:
      return put_as<__half>(to, column, sum);
  }
}

/// A column of threads a column: each adds every kAddRows-th partial row, then those sums are
/// added.
template <class T>
__global__ void __launch_bounds__(kColumnThreads* kAddRows)
    add_kernel(const __grid_constant__ ColumnParts a) {
  __shared__ T shared[kAddRows][kColumnThreads];
  const T* const partial = static_cast<const T*>(a.partial_pf);
  const std::int64_t width = a.width * a.num_targets;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  T sum = 0;
  if (column < width) {
#pragma unroll 8
    for (std::int64_t r = threadIdx.y; r < a.rows; r += kAddRows) {
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
  const auto target = static_cast<int>(column / a.width);
  put(a.targets[target], column - target * a.width, sum);
}

template <class S, int N>
void start(const ColumnSums& sums, unsigned parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(column_blocks(sums.width, N)), parts);
  const dim3 block(kColumnThreads, kRowThreads);
  const Matrix<S> matrix{static_cast<const S*>(sums.x_mf),
                         static_cast<const Wide<S>*>(sums.factor_m),
                         sums.rows,
                         sums.width,
                         sums.stride == 0 ? sums.width : sums.stride};
  auto* const partial = static_cast<Wide<S>*>(sums.partial_pf);
  if (matrix.factor == nullptr) {
    column_kernel<false, S, N><<<grid, block, 0, stream>>>(matrix, partial);
  } else {
    column_kernel<true, S, N><<<grid, block, 0, stream>>>(matrix, partial);
  }
}

}  // namespace

std::int64_t column_parts(std::int64_t rows, std::int64_t width, ElementType type) {
  const int bytes = type == ElementType::fp64 ? 8 : type == ElementType::fp32 ? 4 : 2;
  return row_blocks(rows, width, 16 / bytes);
}

cudaError_t launch_add_parts(ElementType type, const ColumnParts& parts, cudaStream_t stream) {
  const std::int64_t width = parts.width * parts.num_targets;
  if (width == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    const auto blocks = static_cast<unsigned>((width + kColumnThreads - 1) / kColumnThreads);
    add_kernel<Wide<S>><<<blocks, dim3(kColumnThreads, kAddRows), 0, stream>>>(parts);
    return cudaGetLastError();
  });
}

cudaError_t launch_column_sums(ElementType type, const ColumnSums& sums, cudaStream_t stream) {
  if (sums.width == 0) {
    return cudaSuccess;
  }
  const std::int64_t parts = column_parts(sums.rows, sums.width, type);
  const cudaError_t first = with_type(type, [&]<class S>(S) {
    const bool packs =
        sums.width % kPack<S> == 0 && sums.stride % kPack<S> == 0 && aligned(sums.x_mf);
    packs ? start<S, kPack<S>>(sums, static_cast<unsigned>(parts), stream)
          : start<S, 1>(sums, static_cast<unsigned>(parts), stream);
    return cudaGetLastError();
  });
  return first != cudaSuccess ? first
                              : launch_add_parts(type,
                                                 {.partial_pf = sums.partial_pf,
                                                  .rows = parts,
                                                  .width = sums.width,
                                                  .targets = {sums.out_f},
                                                  .num_targets = 1},
                                                 stream);
}

}  // namespace colossal::kernels::cuda
