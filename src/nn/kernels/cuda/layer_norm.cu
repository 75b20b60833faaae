// LayerNorm: each row is read once into registers; rows too long for that are read again from
// cache.
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/layer_norm_launch.hpp"
#include "nn/kernels/cuda/team.cuh"

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
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= a.rows) {
    return;  // a whole warp: rows of one block have a warp each
  }
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

template <class S>
struct Backward {
  const S* grad;
  const S* x;
  const S* weight;
  const Wide<S>* mean;
  const Wide<S>* rstd;
  const S* residual;
  S* x_grad;
  Wide<S>* partial;
  std::int64_t rows;
  std::int64_t hidden;
};

/// What a pack contributes to the mean of dy w and of dy w x^.
template <int N, class S>
__device__ inline void directions(const Pack<S, N>& grad,
                                  const Pack<S, N>& x,
                                  const Pack<S, N>& weight,
                                  Wide<S> mean,
                                  Wide<S> rstd,
                                  Wide<S> (&along)[2]) {
  for (int i = 0; i < N; ++i) {
    const Wide<S> g = load(grad.at[i]) * load(weight.at[i]);
    along[0] += g;
    along[1] += g * (load(x.at[i]) - mean) * rstd;
  }
}

/// The gradient of a pack of x, the residual's added before it is rounded.
template <int N, class S>
__device__ inline void write_gradient(const Backward<S>& a,
                                      std::int64_t at,
                                      const Pack<S, N>& grad,
                                      const Pack<S, N>& x,
                                      const Pack<S, N>& weight,
                                      const Wide<S> (&row)[4]) {
  const auto [mean, rstd, along_one, along_x] = row;
  Pack<S, N> out;
  Wide<S> residual[N] = {};
  if (a.residual != nullptr) {
    const Pack<S, N> pack = load_pack<N>(a.residual + at);
    for (int i = 0; i < N; ++i) {
      residual[i] = load(pack.at[i]);
    }
  }
  for (int i = 0; i < N; ++i) {
    const Wide<S> centred = (load(x.at[i]) - mean) * rstd;
    const Wide<S> g = load(grad.at[i]) * load(weight.at[i]);
    out.at[i] = store<S>((g - along_one - centred * along_x) * rstd + residual[i]);
  }
  store_pack<N>(a.x_grad + at, out);
}

/// What a pack adds to the gradients of weight and bias.
template <int N, class S>
__device__ inline void add_sums(const Pack<S, N>& grad,
                                const Pack<S, N>& x,
                                Wide<S> mean,
                                Wide<S> rstd,
                                Wide<S> (&sums)[2][N]) {
  for (int i = 0; i < N; ++i) {
    sums[0][i] += load(grad.at[i]) * (load(x.at[i]) - mean) * rstd;
    sums[1][i] += load(grad.at[i]);
  }
}

/// Writes such sums of columns [column, column + N).
template <int N, class T>
__device__ inline void write_sums(T* partial,
                                  std::int64_t hidden,
                                  std::int64_t column,
                                  const T (&sums)[2][N]) {
  for (int i = 0; i < N; ++i) {
    partial[column + i] = sums[0][i];
    partial[hidden + column + i] = sums[1][i];
  }
}

/// The sums that this block has written.
template <int N, class T>
__device__ inline void read_sums(const T* partial,
                                 std::int64_t hidden,
                                 std::int64_t column,
                                 T (&sums)[2][N]) {
  for (int i = 0; i < N; ++i) {
    sums[0][i] = partial[column + i];
    sums[1][i] = partial[hidden + column + i];
  }
}

/// Blocks go down the rows; a thread keeps the sums of its columns and writes them at the end.
template <class S, int N, int kHeld>
__global__ void __launch_bounds__(kMostTeam) held_backward(Backward<S> a) {
  using T = Wide<S>;
  const T scale = T(1) / static_cast<T>(a.hidden);
  Pack<S, N> weight[kHeld];
  T sums[kHeld][2][N] = {};
  for_held<N, kHeld>(
      a.hidden, [&](int k, std::int64_t column) { weight[k] = load_pack<N>(a.weight + column); });
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t at = row * a.hidden;
    const T mean = a.mean[row];
    const T rstd = a.rstd[row];
    Pack<S, N> grad[kHeld];
    Pack<S, N> x[kHeld];
    T along[2] = {};
    for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
      grad[k] = load_pack<N>(a.grad + at + column);
      x[k] = load_pack<N>(a.x + at + column);
      directions<N>(grad[k], x[k], weight[k], mean, rstd, along);
      add_sums<N>(grad[k], x[k], mean, rstd, sums[k]);
    });
    team_sum(along[0], along[1], turn++);
    const T of_row[4] = {mean, rstd, along[0] * scale, along[1] * scale};
    for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
      write_gradient<N>(a, at + column, grad[k], x[k], weight[k], of_row);
    });
  }
  T* const partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * 2 * a.hidden;
  for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
    write_sums<N>(partial, a.hidden, column, sums[k]);
  });
}

/// A longer row, read twice; its sums are kept in memory, where each column belongs to one thread.
template <class S, int N>
__global__ void __launch_bounds__(kMostTeam) long_backward(Backward<S> a) {
  using T = Wide<S>;
  const T scale = T(1) / static_cast<T>(a.hidden);
  T* const partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * 2 * a.hidden;
  for_packs<N>(a.hidden, [&](int, std::int64_t column) {
    const T none[2][N] = {};
    write_sums<N>(partial, a.hidden, column, none);
  });
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t at = row * a.hidden;
    const T mean = a.mean[row];
    const T rstd = a.rstd[row];
    T along[2] = {};
    for_packs<N>(a.hidden, [&](int, std::int64_t column) {
      const Pack<S, N> grad = load_pack<N>(a.grad + at + column);
      const Pack<S, N> x = load_pack<N>(a.x + at + column);
      directions<N>(grad, x, load_pack<N>(a.weight + column), mean, rstd, along);
      T sums[2][N];
      read_sums<N>(partial, a.hidden, column, sums);
      add_sums<N>(grad, x, mean, rstd, sums);
      write_sums<N>(partial, a.hidden, column, sums);
    });
    team_sum(along[0], along[1], turn++);
    const T of_row[4] = {mean, rstd, along[0] * scale, along[1] * scale};
    for_packs<N>(a.hidden, [&](int, std::int64_t column) {
      write_gradient<N>(a,
                        at + column,
                        load_pack<N>(a.grad + at + column),
                        load_pack<N>(a.x + at + column),
                        load_pack<N>(a.weight + column),
                        of_row);
    });
  }
}

template <class S, int N>
void start(const Backward<S>& a, cudaStream_t stream) {
  const std::int64_t packs = a.hidden / N;
  const auto blocks = static_cast<unsigned>(layer_norm_parts(a.rows, a.hidden));
  const Team one = team_of(packs, 1);
  if (packs <= one.threads) {
    held_backward<S, N, 1><<<blocks, one.threads, 0, stream>>>(a);
    return;
  }
  if constexpr (N <= 4) {  // two packs of 8 would not fit the registers of a full block
    const Team two = team_of(packs, 2);
    if (packs <= 2 * static_cast<std::int64_t>(two.threads)) {
      held_backward<S, N, 2><<<blocks, two.threads, 0, stream>>>(a);
      return;
    }
  }
  long_backward<S, N><<<blocks, one.threads, 0, stream>>>(a);
}

}  // namespace

std::int64_t layer_norm_parts(std::int64_t rows, std::int64_t hidden) {
  // Short rows need more blocks to fill the device, and their partial sums are short too.
  const std::int64_t blocks = hidden <= 2048 ? 132 * 8 : 132 * 2;
  return rows < blocks ? rows : blocks;
}

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

cudaError_t launch_layer_norm_backward(ElementType type,
                                       const LayerNormBackward& args,
                                       cudaStream_t stream) {
  const std::int64_t parts = layer_norm_parts(args.rows, args.hidden);
  if (parts > 0 && args.hidden > 0) {
    const cudaError_t first = with_type(type, [&]<class S>(S) {
      const Backward<S> a{static_cast<const S*>(args.grad_mh),
                          static_cast<const S*>(args.x_mh),
                          static_cast<const S*>(args.weight_h),
                          static_cast<const Wide<S>*>(args.mean_m),
                          static_cast<const Wide<S>*>(args.rstd_m),
                          static_cast<const S*>(args.residual_mh),
                          static_cast<S*>(args.x_grad_mh),
                          static_cast<Wide<S>*>(args.partial_ph),
                          args.rows,
                          args.hidden};
      const bool packs = args.hidden % kPack<S> == 0 && aligned(a.grad, a.x, a.weight) &&
                         aligned(a.residual) && aligned(a.x_grad);
      packs ? start<S, kPack<S>>(a, stream) : start<S, 1>(a, stream);
      return cudaGetLastError();
    });
    if (first != cudaSuccess) {
      return first;
    }
  }
  return launch_add_parts(type, args.partial_ph, parts, 2 * args.hidden, args.sums_h, stream);
}

}  // namespace colossal::kernels::cuda
