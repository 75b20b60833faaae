// Cross entropy: a block a row, which is read for its largest element and the sum of exponentials,
// and once more, mostly from cache, to be overwritten by its gradient.
#include "nn/kernels/cuda/math.cuh"
#include "nn/kernels/cuda/team.cuh"
#include "nn/kernels/cuda/token_loss_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

template <class S>
struct Args {
  S* logits;
  const std::int64_t* labels;
  double* row_loss;
  std::int64_t width;
  std::int64_t vocabulary;
  std::int64_t ignored;
  Wide<S> grad_scale;
  bool want_grad;
};

/// The largest of some elements, and the sum of exp(z - top).
template <class T>
struct Softmax {
  T top;
  T sum;
};

template <class T>
__device__ inline T lowest();
template <>
__device__ inline float lowest<float>() {
  return -__int_as_float(0x7F800000);
}
template <>
__device__ inline double lowest<double>() {
  return -__longlong_as_double(0x7FF0000000000000LL);
}

/// `sum` of elements below `old` as one of elements below `top`. A NaN in it stays.
template <class M, class T>
__device__ inline T rescaled(T sum, T old, T top) {
  return old == top ? sum : sum * M::exp(old - top);
}

/// Softmax of the elements of both.
template <class M, class T>
__device__ inline Softmax<T> merge(const Softmax<T>& a, const Softmax<T>& b) {
  const T top = a.top > b.top ? a.top : b.top;
  return {top, rescaled<M>(a.sum, a.top, top) + rescaled<M>(b.sum, b.top, top)};
}

/// Over the block, the same in all its threads.
template <class M, class T>
__device__ inline Softmax<T> block_softmax(Softmax<T> own) {
  __shared__ T tops[kWarp];
  __shared__ T sums[kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Softmax<T> other{__shfl_xor_sync(0xFFFFFFFFU, own.top, offset),
                           __shfl_xor_sync(0xFFFFFFFFU, own.sum, offset)};
    own = merge<M>(own, other);
  }
  if (threadIdx.x % kWarp == 0) {
    tops[threadIdx.x / kWarp] = own.top;
    sums[threadIdx.x / kWarp] = own.sum;
  }
  __syncthreads();
  Softmax<T> all{tops[0], sums[0]};
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) {
    all = merge<M>(all, {tops[w], sums[w]});
  }
  return all;
}

/// Of the thread's packs of a row. NaN becomes part of the sum, infinity makes it NaN.
template <class S, int N>
__device__ inline Softmax<Wide<S>> own_softmax(const S* z, std::int64_t vocabulary) {
  using T = Wide<S>;
  using M = Math<S>;
  Softmax<T> own{lowest<T>(), T(0)};
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
#pragma unroll 2
  for (std::int64_t v = static_cast<std::int64_t>(threadIdx.x) * N; v < vocabulary; v += step) {
    const Pack<S, N> pack = load_pack<N>(z + v);
    T top = own.top;
    for (int i = 0; i < N; ++i) {
      const T value = v + i < vocabulary ? load(pack.at[i]) : lowest<T>();
      top = value > top ? value : top;
    }
    const T base = top == lowest<T>() ? T(0) : top;  // all are minus infinity: each counts 0
    T sum = rescaled<M>(own.sum, own.top, top);
    for (int i = 0; i < N; ++i) {
      sum += v + i < vocabulary ? M::exp(load(pack.at[i]) - base) : T(0);
    }
    own = {top, sum};
  }
  return own;
}

/// Overwrites the row by (softmax - onehot) * grad_scale; zero in the padding.
template <class S, int N>
__device__ inline void write_gradient(const Args<S>& a,
                                      S* z,
                                      std::int64_t label,
                                      const Softmax<Wide<S>>& all) {
  using T = Wide<S>;
  const T inverse = a.grad_scale / all.sum;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
#pragma unroll 2
  for (std::int64_t v = static_cast<std::int64_t>(threadIdx.x) * N; v < a.width; v += step) {
    Pack<S, N> pack = load_pack<N>(z + v);
    for (int i = 0; i < N; ++i) {
      const T p = Math<S>::exp(load(pack.at[i]) - all.top) * inverse;
      const T d = v + i == label ? p - a.grad_scale : p;
      pack.at[i] = store<S>(v + i < a.vocabulary ? d : T(0));
    }
    store_pack<N>(z + v, pack);
  }
}

template <class S, int N>
__device__ inline void fill(const Args<S>& a, S* z, Wide<S> value) {
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  for (std::int64_t v = static_cast<std::int64_t>(threadIdx.x) * N; v < a.width; v += step) {
    Pack<S, N> pack;
    for (int i = 0; i < N; ++i) {
      pack.at[i] = store<S>(v + i < a.vocabulary ? value : Wide<S>(0));
    }
    store_pack<N>(z + v, pack);
  }
}

/// Rows in descending order: the product that made the logits has left the last ones in the cache.
template <class S, int N>
__global__ void __launch_bounds__(kMostTeam) loss_kernel(Args<S> a) {
  using T = Wide<S>;
  const std::int64_t row = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x;
  S* const z = a.logits + row * a.width;
  const std::int64_t label = a.labels[row];
  const bool counts = label != a.ignored;
  if (!counts || label < 0 || label >= a.vocabulary) {
    const T value = counts ? T(0) * lowest<T>() : T(0);  // NaN, or nothing
    if (a.want_grad) {
      fill<S, N>(a, z, value);
    }
    if (threadIdx.x == 0) {
      a.row_loss[row] = static_cast<double>(value);
    }
    return;
  }
  const Softmax<T> all = block_softmax<Math<S>>(own_softmax<S, N>(z, a.vocabulary));
  // block_softmax() ends behind a barrier: nobody writes before everybody has read
  if (threadIdx.x == 0) {
    a.row_loss[row] =
        log(static_cast<double>(all.sum)) + static_cast<double>(all.top - load(z[label]));
  }
  if (a.want_grad) {
    __syncthreads();  // the label's logit has been read
    write_gradient<S, N>(a, z, label, all);
  }
}

/// One block adds all rows in a fixed order.
template <class T>
__global__ void __launch_bounds__(kMostTeam)
    sum_kernel(const double* row_loss, std::int64_t rows, T* loss) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    sum += row_loss[r];
  }
  sum = team_sum(sum, 0);
  if (threadIdx.x == 0) {
    loss[0] = static_cast<T>(sum);
  }
}

template <class S, int N>
void start(const Args<S>& a, std::int64_t rows, cudaStream_t stream) {
  const int threads = team_of((a.width + N - 1) / N, 4).threads;
  loss_kernel<S, N><<<static_cast<unsigned>(rows), threads, 0, stream>>>(a);
}

template <class S, int N>
__global__ void scale_kernel(S* x, std::int64_t count, const Wide<S>* factor, Wide<S> constant) {
  const Wide<S> by = factor[0] * constant;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
       at < count;
       at += step) {
    Pack<S, N> pack = load_pack<N>(x + at);
    for (int i = 0; i < N; ++i) {
      pack.at[i] = store<S>(load(pack.at[i]) * by);
    }
    store_pack<N>(x + at, pack);
  }
}

}  // namespace

cudaError_t launch_token_loss(ElementType type, const TokenLoss& args, cudaStream_t stream) {
  return with_type(type, [&]<class S>(S) {
    const Args<S> a{static_cast<S*>(args.logits_mv),
                    args.labels_m,
                    args.row_loss_m,
                    args.width,
                    args.vocabulary,
                    args.ignored,
                    static_cast<Wide<S>>(args.grad_scale),
                    args.want_grad};
    const bool packs = args.width % kPack<S> == 0 && aligned(a.logits);
    if (args.rows > 0) {
      packs ? start<S, kPack<S>>(a, args.rows, stream) : start<S, 1>(a, args.rows, stream);
    }
    sum_kernel<<<1, kMostTeam, 0, stream>>>(
        args.row_loss_m, args.rows, static_cast<Wide<S>*>(args.loss));
    return cudaGetLastError();
  });
}

cudaError_t launch_scale(ElementType type,
                         void* x,
                         std::int64_t count,
                         const void* factor,
                         double constant,
                         cudaStream_t stream) {
  if (count == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    constexpr int N = kPack<S>;
    constexpr int kThreads = 256;
    auto* const values = static_cast<S*>(x);
    const auto* const by = static_cast<const Wide<S>*>(factor);
    const auto wide = static_cast<Wide<S>>(constant);
    if (count % N == 0 && aligned(values)) {
      const unsigned blocks = grid_of((count + kThreads * N - 1) / (kThreads * N));
      scale_kernel<S, N><<<blocks, kThreads, 0, stream>>>(values, count, by, wide);
    } else {
      const unsigned blocks = grid_of((count + kThreads - 1) / kThreads);
      scale_kernel<S, 1><<<blocks, kThreads, 0, stream>>>(values, count, by, wide);
    }
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
