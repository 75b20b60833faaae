// Tables: a warp copies a row. Their gradients: a warp adds the few gradients of a row, a block
// those of a frequent one.
#include "nn/kernels/cuda/element.cuh"
#include "nn/kernels/cuda/embedding_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

constexpr int kWarps = 8;          // of a block, which takes as many rows of the table
constexpr std::int64_t kFew = 64;  // gradients that one warp adds

/// A warp an index.
template <int N, class S>
__global__ void lookup_kernel(const S* weight,
                              const std::int64_t* indices,
                              S* out,
                              std::int64_t count,
                              std::int64_t rows,
                              std::int64_t hidden) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (i >= count) {
    return;
  }
  const std::int64_t row = indices[i];
  const bool known = row >= 0 && row < rows;
  Pack<S, N> missing;
  for (int e = 0; e < N; ++e) {
    missing.at[e] = store<S>(nanf(""));
  }
  for (std::int64_t column = threadIdx.x * N; column < hidden; column += kWarp * N) {
    store_pack<N>(out + i * hidden + column,
                  known ? load_pack<N>(weight + row * hidden + column) : missing);
  }
}

/// first[r]: how many indices are below r.
__global__ void first_kernel(const std::int64_t* sorted,
                             std::int64_t count,
                             std::int64_t rows,
                             std::int64_t* first) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row > rows) {
    return;
  }
  std::int64_t low = 0;
  std::int64_t high = count;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (sorted[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  first[row] = low;
}

template <class S>
struct Args {
  const S* grad;
  const std::int64_t* places;
  const std::int64_t* first;
  S* out;
  std::int64_t rows;
  std::int64_t hidden;
};

/// Adds gradients begin, begin + step, ... < end of columns [column, column + N).
template <int N, class S>
__device__ inline void add_gradients(const Args<S>& a,
                                     std::int64_t begin,
                                     std::int64_t end,
                                     std::int64_t step,
                                     std::int64_t column,
                                     Wide<S> (&sums)[N]) {
#pragma unroll 4
  for (std::int64_t p = begin; p < end; p += step) {
    const Pack<S, N> grad = load_pack<N>(a.grad + a.places[p] * a.hidden + column);
    for (int i = 0; i < N; ++i) {
      sums[i] += load(grad.at[i]);
    }
  }
}

template <int N, class S>
__device__ inline void write_sums(const Args<S>& a,
                                  std::int64_t row,
                                  std::int64_t column,
                                  const Wide<S> (&sums)[N]) {
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    out.at[i] = store<S>(sums[i]);
  }
  store_pack<N>(a.out + row * a.hidden + column, out);
}

/// Columns [column, column + N) of a row with many gradients: each warp takes every kWarps-th, then
/// their sums are added in order. All threads of the block call it.
template <int N, class S>
__device__ inline void frequent_columns(const Args<S>& a, std::int64_t row, std::int64_t column) {
  __shared__ Wide<S> shared[kWarps][N][kWarp];
  Wide<S> sums[N] = {};
  if (column < a.hidden) {
    add_gradients<N>(a, a.first[row] + threadIdx.y, a.first[row + 1], kWarps, column, sums);
  }
  for (int i = 0; i < N; ++i) {
    shared[threadIdx.y][i][threadIdx.x] = sums[i];
  }
  __syncthreads();
  for (int w = 1; threadIdx.y == 0 && w < kWarps; ++w) {
    for (int i = 0; i < N; ++i) {
      sums[i] += shared[w][i][threadIdx.x];
    }
  }
  if (threadIdx.y == 0 && column < a.hidden) {
    write_sums<N>(a, row, column, sums);
  }
  __syncthreads();
}

template <int N, class S>
__device__ inline void frequent_row(const Args<S>& a, std::int64_t row) {
  for (std::int64_t base = 0; base < a.hidden; base += kWarp * N) {
    frequent_columns<N>(a, row, base + threadIdx.x * N);
  }
}

template <int N, class S>
__global__ void add_kernel(Args<S> a) {
  const std::int64_t block_row = static_cast<std::int64_t>(blockIdx.x) * kWarps;
  const std::int64_t own = block_row + threadIdx.y;
  if (own < a.rows && a.first[own + 1] - a.first[own] <= kFew) {
    for (std::int64_t column = threadIdx.x * N; column < a.hidden; column += kWarp * N) {
      Wide<S> sums[N] = {};
      add_gradients<N>(a, a.first[own], a.first[own + 1], 1, column, sums);
      write_sums<N>(a, own, column, sums);
    }
  }
  for (std::int64_t row = block_row; row < block_row + kWarps && row < a.rows; ++row) {
    if (a.first[row + 1] - a.first[row] > kFew) {
      frequent_row<N>(a, row);
    }
  }
}

template <int N, class S>
void start(const Args<S>& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((args.rows + kWarps - 1) / kWarps);
  add_kernel<N><<<blocks, dim3(kWarp, kWarps), 0, stream>>>(args);
}

template <int N, class S>
void start_lookup(const EmbeddingRows& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((args.count + kWarps - 1) / kWarps);
  lookup_kernel<N>
      <<<blocks, dim3(kWarp, kWarps), 0, stream>>>(static_cast<const S*>(args.weight_rh),
                                                   args.indices_m,
                                                   static_cast<S*>(args.out_mh),
                                                   args.count,
                                                   args.rows,
                                                   args.hidden);
}

}  // namespace

cudaError_t launch_embedding_forward(ElementType type,
                                     const EmbeddingRows& args,
                                     cudaStream_t stream) {
  if (args.count * args.hidden == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    const bool packs = args.hidden % kPack<S> == 0 &&
                       aligned(static_cast<const char*>(args.weight_rh)) &&
                       aligned(static_cast<const char*>(args.out_mh));
    packs ? start_lookup<kPack<S>, S>(args, stream) : start_lookup<1, S>(args, stream);
    return cudaGetLastError();
  });
}

cudaError_t launch_embedding_backward(ElementType type,
                                      const EmbeddingGrad& args,
                                      cudaStream_t stream) {
  if (args.rows * args.hidden == 0) {
    return cudaSuccess;
  }
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((args.rows + kThreads) / kThreads);
  first_kernel<<<blocks, kThreads, 0, stream>>>(args.sorted_m, args.count, args.rows, args.first);
  return with_type(type, [&]<class S>(S) {
    const Args<S> a{static_cast<const S*>(args.grad_mh),
                    args.places_m,
                    args.first,
                    static_cast<S*>(args.out_rh),
                    args.rows,
                    args.hidden};
    const bool packs = args.hidden % kPack<S> == 0 && aligned(a.grad) && aligned(a.out);
    packs ? start<kPack<S>>(a, stream) : start<1>(a, stream);
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
