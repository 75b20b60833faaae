// Cross entropy: a block a row, which is read for its largest element and the sum of exponentials,
// and once more to be overwritten: from shared memory where two rows fit there, else from cache.
#include "nn/kernels/cuda/math.cuh"
#include "nn/kernels/cuda/team.cuh"
#include "nn/kernels/cuda/token_loss_launch.hpp"

#include <cuda_pipeline_primitives.h>

namespace colossal::kernels::cuda {

namespace {

/// Threads of a block that keeps its row in shared memory.
constexpr int kSharedTeam = 512;

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

/// f(v, pack, full) for the packs of this thread in a row; `full`: all below `vocabulary`. Without
/// a comparison an element, which whole packs do not need, memory decides, not arithmetic.
template <int N, class Load, class F>
__device__ inline void for_row(std::int64_t vocabulary, const Load& load_at, const F& f) {
  const auto end = static_cast<std::int32_t>(vocabulary);
  const auto step = static_cast<std::int32_t>(blockDim.x) * N;
#pragma unroll 2
  for (std::int32_t v = static_cast<std::int32_t>(threadIdx.x) * N; v < end; v += step) {
    f(v, load_at(v), v + N <= end);
  }
}

/// The largest element of a pack and `top`, of those below `vocabulary`.
template <class S, int N>
__device__ inline Wide<S> largest(const Pack<S, N>& pack, int count, Wide<S> top) {
  for (int i = 0; i < N; ++i) {
    const Wide<S> value = i < count ? load(pack.at[i]) : lowest<Wide<S>>();
    top = value > top ? value : top;
  }
  return top;
}

/// Sum of exp(z - base) over the first `count` elements of a pack.
template <class S, int N>
__device__ inline Wide<S> exponentials(const Pack<S, N>& pack, int count, Wide<S> base) {
  Wide<S> sum = 0;
  for (int i = 0; i < N; ++i) {
    sum += i < count ? Math<S>::exp(load(pack.at[i]) - base) : Wide<S>(0);
  }
  return sum;
}

/// Where all are minus infinity, each counts 0.
template <class T>
__device__ inline T base_of(T top) {
  return top == lowest<T>() ? T(0) : top;
}

/// Of the thread's packs of a row. NaN becomes part of the sum, infinity makes it NaN.
template <class S, int N>
__device__ inline Softmax<Wide<S>> own_softmax(const S* z, std::int64_t vocabulary) {
  using T = Wide<S>;
  Softmax<T> own{lowest<T>(), T(0)};
  const auto add = [&](const Pack<S, N>& pack, int count) {
    const T top = largest<S, N>(pack, count, own.top);
    own = {
        top,
        rescaled<Math<S>>(own.sum, own.top, top) + exponentials<S, N>(pack, count, base_of(top))};
  };
  for_row<N>(
      vocabulary,
      [&](std::int32_t v) { return load_pack<N>(z + v); },
      [&](std::int32_t v, const Pack<S, N>& pack, bool full) {
        full ? add(pack, N) : add(pack, static_cast<int>(vocabulary) - v);
      });
  return own;
}

/// The same of a row that is copied to shared memory on the way, all of it asked for before any of
/// it is read: only then is the memory kept busy. A thread reads what it has copied, so no barrier
/// is needed.
template <class S, int N>
__device__ inline Softmax<Wide<S>> own_softmax(const S* z,
                                               Pack<S, N>* copy,
                                               std::int64_t vocabulary) {
  using T = Wide<S>;
  const auto end = static_cast<std::int32_t>(vocabulary);
  for (std::int32_t v = static_cast<std::int32_t>(threadIdx.x) * N; v < end;
       v += static_cast<std::int32_t>(blockDim.x) * N) {
    __pipeline_memcpy_async(copy + v / N, z + v, sizeof(Pack<S, N>));
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  Softmax<T> own{lowest<T>(), T(0)};
  const auto copied = [&](std::int32_t v) { return copy[v / N]; };
  for_row<N>(vocabulary, copied, [&](std::int32_t v, const Pack<S, N>& pack, bool full) {
    own.top = full ? largest<S, N>(pack, N, own.top) : largest<S, N>(pack, end - v, own.top);
  });
  const T base = base_of(own.top);
  for_row<N>(vocabulary, copied, [&](std::int32_t v, const Pack<S, N>& pack, bool full) {
    own.sum += full ? exponentials<S, N>(pack, N, base) : exponentials<S, N>(pack, end - v, base);
  });
  return own;
}

/// What the gradient of a row is made of.
template <class S>
struct Slope {
  Wide<S> top;
  Wide<S> inverse;  // factor / sum of exponentials
  Wide<S> factor;
  std::int32_t label;
  std::int32_t end;  // the vocabulary

  [[nodiscard]] __device__ Wide<S> probability(const S& z) const {
    return Math<S>::exp(load(z) - top) * inverse;
  }

  /// Of a pack that has neither the label nor padding.
  template <int N>
  [[nodiscard]] __device__ Pack<S, N> of(const Pack<S, N>& z) const {
    Pack<S, N> pack;
    for (int i = 0; i < N; ++i) {
      pack.at[i] = store<S>(probability(z.at[i]));
    }
    return pack;
  }

  /// Of any pack, which begins at column v.
  template <int N>
  [[nodiscard]] __device__ Pack<S, N> of(const Pack<S, N>& z, std::int32_t v) const {
    Pack<S, N> pack;
    for (int i = 0; i < N; ++i) {
      const Wide<S> p = probability(z.at[i]);
      const Wide<S> d = v + i == label ? p - factor : p;
      pack.at[i] = store<S>(v + i < end ? d : Wide<S>(0));
    }
    return pack;
  }
};

/// Overwrites the row by (softmax - onehot) * grad_scale; zero in the padding.
template <class S, int N, bool kShared>
__device__ inline void write_gradient(const Args<S>& a,
                                      S* z,
                                      const Pack<S, N>* copy,
                                      std::int64_t label,
                                      const Softmax<Wide<S>>& all) {
  const Slope<S> slope{all.top,
                       a.grad_scale / all.sum,
                       a.grad_scale,
                       static_cast<std::int32_t>(label),
                       static_cast<std::int32_t>(a.vocabulary)};
  const auto read = [&](std::int32_t v) { return kShared ? copy[v / N] : load_pack<N>(z + v); };
  for_row<N>(a.vocabulary, read, [&](std::int32_t v, const Pack<S, N>& from, bool full) {
    const bool plain = full && (slope.label < v || slope.label >= v + N);
    store_pack<N>(z + v, plain ? slope.template of<N>(from) : slope.template of<N>(from, v));
  });
  const std::int64_t packs = (a.vocabulary + N - 1) / N;
  for (std::int64_t v = packs * N + threadIdx.x; v < a.width; v += blockDim.x) {
    z[v] = store<S>(Wide<S>(0));
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
template <class S, int N, bool kShared>
__global__ void __launch_bounds__(kShared ? kSharedTeam : kMostTeam) loss_kernel(Args<S> a) {
  extern __shared__ __align__(16) char shared[];
  using T = Wide<S>;
  const std::int64_t r = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x;
  S* const z = a.logits + r * a.width;
  const std::int64_t label = a.labels[r];
  const bool counts = label != a.ignored;
  if (!counts || label < 0 || label >= a.vocabulary) {
    const T value = counts ? T(0) * lowest<T>() : T(0);  // NaN, or nothing
    if (a.want_grad) {
      fill<S, N>(a, z, value);
    }
    if (threadIdx.x == 0) {
      a.row_loss[r] = static_cast<double>(value);
    }
    return;
  }
  auto* const copy = reinterpret_cast<Pack<S, N>*>(shared);
  Softmax<T> own;
  if constexpr (kShared) {
    own = own_softmax<S, N>(z, copy, a.vocabulary);
  } else {
    own = own_softmax<S, N>(z, a.vocabulary);
  }
  const Softmax<T> all = block_softmax<Math<S>>(own);
  // block_softmax() ends behind a barrier: nobody writes before everybody has read
  if (threadIdx.x == 0) {
    a.row_loss[r] =
        log(static_cast<double>(all.sum)) + static_cast<double>(all.top - load(z[label]));
  }
  if (a.want_grad) {
    __syncthreads();  // the label's logit has been read
    write_gradient<S, N, kShared>(a, z, copy, label, all);
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

/// Shared memory that lets two blocks be on a multiprocessor; 0 where a row needs more or the
/// device has less.
inline int shared_bytes_of(std::int64_t row_bytes) {
  int device = 0;
  int most = 0;
  int whole = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
          cudaSuccess &&
      cudaDeviceGetAttribute(&whole, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) ==
          cudaSuccess;
  constexpr int kReserved = 2048;  // what a block has besides
  return known && row_bytes <= most - kReserved && 2 * (row_bytes + kReserved) <= whole
             ? static_cast<int>(row_bytes)
             : 0;
}

template <class S, int N>
cudaError_t start(const Args<S>& a, std::int64_t rows, cudaStream_t stream) {
  if (rows == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(rows);
  const std::int64_t packs = (a.width + N - 1) / N;
  // Short rows stay in the cache between the two reads.
  constexpr std::int64_t kLong = 16 * 1024;
  const std::int64_t row_bytes = packs * static_cast<std::int64_t>(sizeof(Pack<S, N>));
  const int shared = N > 1 && a.want_grad && row_bytes >= kLong ? shared_bytes_of(row_bytes) : 0;
  if (shared == 0) {
    loss_kernel<S, N, false><<<blocks, team_of(packs, 4).threads, 0, stream>>>(a);
    return cudaGetLastError();
  }
  const cudaError_t status = cudaFuncSetAttribute(
      loss_kernel<S, N, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (status == cudaSuccess) {
    loss_kernel<S, N, true><<<blocks, kSharedTeam, shared, stream>>>(a);
  }
  return status == cudaSuccess ? cudaGetLastError() : status;
}

/// x *= factor / expected; nothing is touched where both are equal.
template <class S, int N>
__global__ void scale_kernel(S* x, std::int64_t count, const Wide<S>* factor, Wide<S> expected) {
  if (factor[0] == expected) {
    return;
  }
  const Wide<S> by = factor[0] / expected;
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
    const cudaError_t status =
        packs ? start<S, kPack<S>>(a, args.rows, stream) : start<S, 1>(a, args.rows, stream);
    if (status != cudaSuccess) {
      return status;
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
                         double expected,
                         cudaStream_t stream) {
  if (count == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    constexpr int N = kPack<S>;
    constexpr int kThreads = 256;
    auto* const values = static_cast<S*>(x);
    const auto* const by = static_cast<const Wide<S>*>(factor);
    const auto wide = static_cast<Wide<S>>(expected);
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
