// Products of a few rows: a warp an output, for four rows at a time. Every row goes through the
// same operations in the same order, however many there are: lane l adds elements l * N, l * N + 1,
// ... of each stretch of 32 N elements, N that of a pack, then the lanes are added in pairs.
#include "nn/kernels/cuda/element.cuh"
#include "nn/kernels/cuda/few_rows_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

constexpr int kWarps = 4;  // outputs of a block
constexpr int kRows = 4;   // at a time

template <class T>
struct Product {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

/// N elements, by one instruction or by N: the values are the same. Beyond the row: zeros.
template <bool kPacks, int N, class T>
__device__ inline Pack<T, N> load_part(const T* row, std::int64_t i, std::int64_t in) {
  if constexpr (kPacks) {
    return load_pack<N>(row + i);
  } else {
    Pack<T, N> pack;
    for (int e = 0; e < N; ++e) {
      pack.at[e] = i + e < in ? row[i + e] : T(0);
    }
    return pack;
  }
}

/// sum + a . b, element by element.
template <int N, class T>
__device__ inline T add_products(const Pack<T, N>& a, const Pack<T, N>& b, T sum) {
  for (int e = 0; e < N; ++e) {
    sum = fma(a.at[e], b.at[e], sum);
  }
  return sum;
}

/// Rows first ... first + Rows - 1 of output o.
template <bool kPacks, int Rows, class T>
__device__ inline void output(const Product<T>& p, std::int64_t first, std::int64_t o) {
  constexpr int N = kPack<T>;
  const T* const weight = p.weight + o * p.in;
  const T* const x = p.x + first * p.in;
  T sums[Rows] = {};
#pragma unroll 2
  for (std::int64_t i = threadIdx.x * N; i < p.in; i += kWarp * N) {
    const Pack<T, N> w = load_part<kPacks, N>(weight, i, p.in);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      sums[r] = add_products<N>(load_part<kPacks, N>(x + r * p.in, i, p.in), w, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const T total = warp_sum(sums[r]);
    if (threadIdx.x == 0) {
      p.y[(first + r) * p.out + o] = p.bias == nullptr ? total : total + p.bias[o];
    }
  }
}

template <bool kPacks, class T>
__global__ void few_rows_kernel(Product<T> p) {
  const std::int64_t o = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (o >= p.out) {
    return;
  }
  std::int64_t first = 0;
  for (; first + kRows <= p.rows; first += kRows) {
    output<kPacks, kRows>(p, first, o);
  }
  for (; first < p.rows; ++first) {
    output<kPacks, 1>(p, first, o);
  }
}

}  // namespace

cudaError_t launch_few_rows(ElementType type, const FewRows& args, cudaStream_t stream) {
  if (args.rows * args.out == 0) {
    return cudaSuccess;
  }
  return with_wide(type, [&]<class T>(T) {
    const Product<T> p{static_cast<const T*>(args.x),
                       static_cast<const T*>(args.weight),
                       static_cast<const T*>(args.bias),
                       static_cast<T*>(args.y),
                       args.rows,
                       args.in,
                       args.out};
    const auto blocks = static_cast<unsigned>((args.out + kWarps - 1) / kWarps);
    const dim3 threads(kWarp, kWarps);
    const bool packs = args.in % kPack<T> == 0 && aligned(p.x, p.weight);
    packs ? few_rows_kernel<true><<<blocks, threads, 0, stream>>>(p)
          : few_rows_kernel<false><<<blocks, threads, 0, stream>>>(p);
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
