// Keyed dropout: a thread draws the words of one group of elements of the whole activation.
// Compiled without contraction, so that a kept element and its residual are added as on the CPU.
#include "nn/kernels/cuda/dropout_launch.hpp"
#include "nn/kernels/cuda/element.cuh"

namespace colossal::kernels::cuda {

namespace {

struct Words {
  std::uint32_t at[4];
};

/// Philox4x32-10 as in mesh/philox.hpp, whose std::array is no device code.
__device__ inline Words philox(std::uint64_t key, std::uint64_t block, std::uint32_t step) {
  auto c0 = static_cast<std::uint32_t>(block);
  auto c1 = static_cast<std::uint32_t>(block >> 32U);
  std::uint32_t c2 = step;
  std::uint32_t c3 = 0;
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53U, c0);
    const std::uint32_t low0 = 0xD2511F53U * c0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57U, c2);
    const std::uint32_t low1 = 0xCD9E8D57U * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

template <class S>
struct Args {
  const S* x;
  const S* residual;
  S* out;
  std::int64_t count;
  std::uint64_t stream;
  std::uint32_t step;
  std::uint64_t first;
  std::uint32_t threshold;
  Wide<S> scale;
  const std::uint32_t* later;
};

/// Elements of the whole activation that a thread takes: whole blocks of words, 16 bytes at least.
template <class S>
inline constexpr int kGroup = kPack<S> < 4 ? 4 : kPack<S>;

template <class S>
__device__ inline Wide<S> kept(const Args<S>& a, std::uint32_t word, S x) {
  return word >= a.threshold ? load(x) * a.scale : Wide<S>(0);
}

/// The words of the elements of a group, the first of which is element `index` of the activation.
template <class S>
__device__ inline void draw(const Args<S>& a, std::uint64_t index, std::uint32_t* words) {
  for (int b = 0; b < kGroup<S> / 4; ++b) {
    const Words block = philox(a.stream, index / 4 + static_cast<std::uint64_t>(b), a.step);
    for (int i = 0; i < 4; ++i) {
      words[4 * b + i] = block.at[i];
    }
  }
}

/// A whole group at element `at` of x.
template <class S>
__device__ inline void drop_pack(const Args<S>& a, std::int64_t at, const std::uint32_t* words) {
  constexpr int N = kGroup<S>;
  const Pack<S, N> x = load_pack<N>(a.x + at);
  Pack<S, N> out;
  if (a.residual == nullptr) {
    for (int i = 0; i < N; ++i) {
      out.at[i] = store<S>(kept(a, words[i], x.at[i]));
    }
  } else {  // added before the result is rounded to its dtype
    const Pack<S, N> residual = load_pack<N>(a.residual + at);
    for (int i = 0; i < N; ++i) {
      out.at[i] = store<S>(kept(a, words[i], x.at[i]) + load(residual.at[i]));
    }
  }
  store_pack<N>(a.out + at, out);
}

/// The elements of a group that are in x, one by one.
template <class S>
__device__ inline void drop_some(const Args<S>& a, std::int64_t at, const std::uint32_t* words) {
  for (int i = 0; i < kGroup<S>; ++i) {
    const std::int64_t e = at + i;
    if (e >= 0 && e < a.count) {
      const Wide<S> value = kept(a, words[i], a.x[e]);
      a.out[e] = store<S>(a.residual == nullptr ? value : value + load(a.residual[e]));
    }
  }
}

/// Groups that begin at multiples of kGroup in the whole activation; `kPacks`: they do so in x too.
template <bool kPacks, class S>
__global__ void dropout_kernel(Args<S> a, std::uint64_t first_group, std::int64_t groups) {
  constexpr int N = kGroup<S>;
  a.step += a.later == nullptr ? 0 : *a.later;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       g < groups;
       g += step) {
    const std::uint64_t index = (first_group + static_cast<std::uint64_t>(g)) * N;
    std::uint32_t words[N];
    draw(a, index, words);
    const auto at = static_cast<std::int64_t>(index - a.first);  // below 0: begins before x
    if (kPacks && at >= 0 && at + N <= a.count) {
      drop_pack(a, at, words);
    } else {
      drop_some(a, at, words);
    }
  }
}

}  // namespace

cudaError_t launch_dropout(ElementType type, const Dropout& args, cudaStream_t stream) {
  if (args.count == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    constexpr int N = kGroup<S>;
    constexpr int kThreads = 256;
    const Args<S> a{static_cast<const S*>(args.x),
                    static_cast<const S*>(args.residual),
                    static_cast<S*>(args.out),
                    args.count,
                    args.stream,
                    args.step,
                    args.first,
                    args.threshold,
                    static_cast<Wide<S>>(args.scale),
                    args.later};
    const std::uint64_t first_group = args.first / N;
    const std::uint64_t end = args.first + static_cast<std::uint64_t>(args.count);
    const auto groups = static_cast<std::int64_t>((end + N - 1) / N - first_group);
    const unsigned blocks = grid_of((groups + kThreads - 1) / kThreads);
    const bool packs = args.first % N == 0 && aligned(a.x, a.residual) && aligned(a.out);
    packs ? dropout_kernel<true><<<blocks, kThreads, 0, stream>>>(a, first_group, groups)
          : dropout_kernel<false><<<blocks, kThreads, 0, stream>>>(a, first_group, groups);
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
