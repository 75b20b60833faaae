// LayerNorm forward: each row is read once into registers; rows too long for that are read again
// from cache.
#include "nn/kernels/cuda/held.cuh"
#include "nn/kernels/cuda/layer_norm_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

constexpr int kHeldForward = 4;  // packs of a row that a thread holds

template <class S>
struct Forward {
  const S* x;
  const S* weight;
  const S* bias;
  S* y;
  Wide<S>* mean;
  Wide<S>* rstd;
  std::int64_t rows;
  std::int64_t hidden;
  Wide<S> eps;
};

template <class S, int N>
__device__ inline void write_row(const Forward<S>& a,
                                 std::int64_t at,
                                 std::int64_t column,
                                 const Pack<S, N>& x,
                                 Wide<S> mean,
                                 Wide<S> rstd) {
  const Pack<S, N> weight = load_pack<N>(a.weight + column);
  const Pack<S, N> bias = load_pack<N>(a.bias + column);
  Pack<S, N> y;
  for (int i = 0; i < N; ++i) {
    y.at[i] = store<S>((load(x.at[i]) - mean) * rstd * load(weight.at[i]) + load(bias.at[i]));
  }
  store_pack<N>(a.y + at + column, y);
}

template <int N, class S>
__device__ inline Wide<S> sum_of(const Pack<S, N>& x) {
  Wide<S> sum = 0;
  for (int i = 0; i < N; ++i) {
    sum += load(x.at[i]);
  }
  return sum;
}

template <int N, class S>
__device__ inline Wide<S> squares_of(const Pack<S, N>& x, Wide<S> mean) {
  Wide<S> sum = 0;
  for (int i = 0; i < N; ++i) {
    const Wide<S> d = load(x.at[i]) - mean;
    sum += d * d;
  }
  return sum;
}

/// A row that fits the registers of its team. The variance is taken around the mean, as on the CPU.
template <class S, int N>
__global__ void __launch_bounds__(kMostTeam) held_forward(Forward<S> a) {
  using T = Wide<S>;
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (number >= a.rows) {
    return;  // a whole warp: rows of one block have a warp each
  }
  const std::int64_t row = a.rows - 1 - number;  // the product before left the last rows in cache
  const std::int64_t at = row * a.hidden;
  Pack<S, N> x[kHeldForward];
  T sum = 0;
  for_held<N, kHeldForward>(a.hidden, [&](int k, std::int64_t column) {
    x[k] = load_pack<N>(a.x + at + column);
    sum += sum_of<N>(x[k]);
  });
  const T mean = team_sum(sum, 0) / static_cast<T>(a.hidden);
  T squares = 0;
  for_held<N, kHeldForward>(a.hidden,
                            [&](int k, std::int64_t) { squares += squares_of<N>(x[k], mean); });
  const T rstd = T(1) / sqrt(team_sum(squares, 1) / static_cast<T>(a.hidden) + a.eps);
  for_held<N, kHeldForward>(a.hidden, [&](int k, std::int64_t column) {
    write_row<S, N>(a, at, column, x[k], mean, rstd);
  });
  if (threadIdx.x == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

/// A longer row, read three times.
template <class S, int N>
__global__ void __launch_bounds__(kMostTeam) long_forward(Forward<S> a) {
  using T = Wide<S>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t at = row * a.hidden;
  T sum = 0;
  for_packs<N>(a.hidden, [&](int, std::int64_t column) {
    sum += sum_of<N>(load_pack<N>(a.x + at + column));
  });
  const T mean = team_sum(sum, 0) / static_cast<T>(a.hidden);
  T squares = 0;
  for_packs<N>(a.hidden, [&](int, std::int64_t column) {
    squares += squares_of<N>(load_pack<N>(a.x + at + column), mean);
  });
  const T rstd = T(1) / sqrt(team_sum(squares, 1) / static_cast<T>(a.hidden) + a.eps);
  for_packs<N>(a.hidden, [&](int, std::int64_t column) {
    write_row<S, N>(a, at, column, load_pack<N>(a.x + at + column), mean, rstd);
  });
  if (threadIdx.x == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <class S, int N>
void start(const Forward<S>& a, cudaStream_t stream) {
  const std::int64_t packs = a.hidden / N;
  const Team team = team_of(packs, kHeldForward);
  if (packs > static_cast<std::int64_t>(team.threads) * kHeldForward) {
    long_forward<S, N><<<static_cast<unsigned>(a.rows), team.threads, 0, stream>>>(a);
    return;
  }
  const auto blocks = static_cast<unsigned>((a.rows + team.rows - 1) / team.rows);
  held_forward<S, N><<<blocks, dim3(team.threads, team.rows), 0, stream>>>(a);
}

}  // namespace

cudaError_t launch_layer_norm(ElementType type, const LayerNormForward& args, cudaStream_t stream) {
  if (args.rows * args.hidden == 0) {
    return cudaSuccess;
  }
  return with_type(type, [&]<class S>(S) {
    const Forward<S> a{static_cast<const S*>(args.x_mh),
                       static_cast<const S*>(args.weight_h),
                       static_cast<const S*>(args.bias_h),
                       static_cast<S*>(args.y_mh),
                       static_cast<Wide<S>*>(args.mean_m),
                       static_cast<Wide<S>*>(args.rstd_m),
                       args.rows,
                       args.hidden,
                       static_cast<Wide<S>>(args.eps)};
    const bool packs =
        args.hidden % kPack<S> == 0 && aligned(a.x, a.weight, a.bias) && aligned(a.y);
    packs ? start<S, kPack<S>>(a, stream) : start<S, 1>(a, stream);
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
