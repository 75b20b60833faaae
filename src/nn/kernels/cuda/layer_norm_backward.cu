// LayerNorm backward: a block goes up some rows, each read once into registers; rows too long for
// that are read again from cache. The last rows come first: the product before has left them in
// cache, and the product after begins with the first.
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/held.cuh"
#include "nn/kernels/cuda/layer_norm_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

constexpr int kSums = 3;         // of a column: for weight and bias, and of the gradient of x
constexpr int kShortTeam = 256;  // threads of a block whose rows are short

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

/// What a pack adds to the gradients of weight and bias.
template <int N, class S>
__device__ inline void add_sums(const Pack<S, N>& grad,
                                const Pack<S, N>& x,
                                Wide<S> mean,
                                Wide<S> rstd,
                                Wide<S> (&sums)[kSums][N]) {
  for (int i = 0; i < N; ++i) {
    sums[0][i] += load(grad.at[i]) * (load(x.at[i]) - mean) * rstd;
    sums[1][i] += load(grad.at[i]);
  }
}

/// What the gradient of a pack of x is made of.
template <class S, int N>
struct Parts {
  const Pack<S, N>& grad;
  const Pack<S, N>& x;
  const Pack<S, N>& weight;
  const Pack<S, N>& residual;
};

/// Writes the gradient of a pack of x, the residual's added before it is rounded, and adds what was
/// written to its sums. `row`: mean, 1/std and the two directions.
template <int N, class S>
__device__ inline void write_gradient(const Backward<S>& a,
                                      std::int64_t at,
                                      const Parts<S, N>& of,
                                      const Wide<S> (&row)[4],
                                      Wide<S> (&sums)[N]) {
  const auto [mean, rstd, along_one, along_x] = row;
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    const Wide<S> centred = (load(of.x.at[i]) - mean) * rstd;
    const Wide<S> g = load(of.grad.at[i]) * load(of.weight.at[i]);
    const Wide<S> more = a.residual == nullptr ? Wide<S>(0) : load(of.residual.at[i]);
    out.at[i] = store<S>((g - along_one - centred * along_x) * rstd + more);
    sums[i] += load(out.at[i]);
  }
  store_pack<N>(a.x_grad + at, out);
}

/// Writes the sums of columns [column, column + N).
template <int N, class T>
__device__ inline void write_sums(T* partial,
                                  std::int64_t hidden,
                                  std::int64_t column,
                                  const T (&sums)[kSums][N]) {
  for (int s = 0; s < kSums; ++s) {
    for (int i = 0; i < N; ++i) {
      partial[s * hidden + column + i] = sums[s][i];
    }
  }
}

/// The sums that this block has written.
template <int N, class T>
__device__ inline void read_sums(const T* partial,
                                 std::int64_t hidden,
                                 std::int64_t column,
                                 T (&sums)[kSums][N]) {
  for (int s = 0; s < kSums; ++s) {
    for (int i = 0; i < N; ++i) {
      sums[s][i] = partial[s * hidden + column + i];
    }
  }
}

/// A pack of a row as both passes over it need it.
template <class T, int N>
struct Held {
  T centred[N];   ///< (x - mean) / std
  T weighted[N];  ///< gradient times weight
};

/// Reads a pack, adds it to the sums of its columns and to the directions of its row.
template <class S, int N>
__device__ inline Held<Wide<S>, N> hold(const Pack<S, N>& grad,
                                        const Pack<S, N>& x,
                                        const Pack<S, N>& weight,
                                        const Wide<S> (&row)[2],
                                        Wide<S> (&sums)[kSums][N],
                                        Wide<S> (&along)[2]) {
  Held<Wide<S>, N> held;
  for (int i = 0; i < N; ++i) {
    const Wide<S> g = load(grad.at[i]);
    held.centred[i] = (load(x.at[i]) - row[0]) * row[1];
    held.weighted[i] = g * load(weight.at[i]);
    along[0] += held.weighted[i];
    along[1] += held.weighted[i] * held.centred[i];
    sums[0][i] += g * held.centred[i];
    sums[1][i] += g;
  }
  return held;
}

/// The gradient of a pack of x; adds what is written to the sums of its columns. `row`: 1/std and
/// the two directions.
template <class S, int N>
__device__ inline Pack<S, N> gradient_of(const Held<Wide<S>, N>& held,
                                         const Pack<S, N>& residual,
                                         const Wide<S> (&row)[3],
                                         Wide<S> (&sums)[N]) {
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    const Wide<S> own = held.weighted[i] - row[1] - held.centred[i] * row[2];
    out.at[i] = store<S>(own * row[0] + load(residual.at[i]));
    sums[i] += load(out.at[i]);
  }
  return out;
}

/// A thread keeps the sums of its columns and writes them at the end.
template <class S, int N, int kHeld, int kMost>
__global__ void __launch_bounds__(kMost, kMost == kShortTeam ? 3 : 1) held_backward(Backward<S> a) {
  using T = Wide<S>;
  const T scale = T(1) / static_cast<T>(a.hidden);
  Pack<S, N> weight[kHeld];
  T sums[kHeld][kSums][N] = {};
  for_held<N, kHeld>(
      a.hidden, [&](int k, std::int64_t column) { weight[k] = load_pack<N>(a.weight + column); });
  int turn = 0;
  for (std::int64_t row = a.rows - 1 - blockIdx.x; row >= 0; row -= gridDim.x) {
    const std::int64_t at = row * a.hidden;
    const T of_x[2] = {a.mean[row], a.rstd[row]};
    Held<T, N> held[kHeld];
    Pack<S, N> residual[kHeld];
    T along[2] = {};
    for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
      const Pack<S, N> grad = load_pack<N>(a.grad + at + column);
      const Pack<S, N> x = load_pack<N>(a.x + at + column);
      residual[k] = a.residual == nullptr ? Pack<S, N>{} : load_pack<N>(a.residual + at + column);
      held[k] = hold<S, N>(grad, x, weight[k], of_x, sums[k], along);
    });
    team_sum(along[0], along[1], turn++);
    const T of_row[3] = {of_x[1], along[0] * scale, along[1] * scale};
    for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
      store_pack<N>(a.x_grad + at + column,
                    gradient_of<S, N>(held[k], residual[k], of_row, sums[k][2]));
    });
  }
  T* const partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * kSums * a.hidden;
  for_held<N, kHeld>(a.hidden, [&](int k, std::int64_t column) {
    write_sums<N>(partial, a.hidden, column, sums[k]);
  });
}

/// A longer row, read twice; its sums are kept in memory, where each column belongs to one thread.
template <class S, int N>
__global__ void __launch_bounds__(kMostTeam) long_backward(Backward<S> a) {
  using T = Wide<S>;
  const T scale = T(1) / static_cast<T>(a.hidden);
  T* const partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * kSums * a.hidden;
  for_packs<N>(a.hidden, [&](int, std::int64_t column) {
    const T none[kSums][N] = {};
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
      T sums[kSums][N];
      read_sums<N>(partial, a.hidden, column, sums);
      add_sums<N>(grad, x, mean, rstd, sums);
      write_sums<N>(partial, a.hidden, column, sums);
    });
    team_sum(along[0], along[1], turn++);
    const T of_row[4] = {mean, rstd, along[0] * scale, along[1] * scale};
    for_packs<N>(a.hidden, [&](int, std::int64_t column) {
      const Pack<S, N> grad = load_pack<N>(a.grad + at + column);
      const Pack<S, N> x = load_pack<N>(a.x + at + column);
      const Pack<S, N> weight = load_pack<N>(a.weight + column);
      // Not read where there is none.
      const Pack<S, N> residual =
          a.residual == nullptr ? x : load_pack<N>(a.residual + at + column);
      T sums[kSums][N];
      read_sums<N>(partial, a.hidden, column, sums);
      write_gradient<N>(a, at + column, {grad, x, weight, residual}, of_row, sums[2]);
      write_sums<N>(partial, a.hidden, column, sums);
    });
  }
}

template <class S, int N, int kHeld>
void start_held(const Backward<S>& a, unsigned blocks, int threads, cudaStream_t stream) {
  if (threads <= kShortTeam) {
    held_backward<S, N, kHeld, kShortTeam><<<blocks, threads, 0, stream>>>(a);
  } else {
    held_backward<S, N, kHeld, kMostTeam><<<blocks, threads, 0, stream>>>(a);
  }
}

template <class S, int N>
void start(const Backward<S>& a, cudaStream_t stream) {
  const std::int64_t packs = a.hidden / N;
  const auto blocks = static_cast<unsigned>(layer_norm_parts(a.rows, a.hidden));
  const Team one = team_of(packs, 1);
  if (packs <= one.threads) {
    start_held<S, N, 1>(a, blocks, one.threads, stream);
    return;
  }
  if constexpr (N <= 4) {  // two packs of 8 would not fit the registers of a full block
    const Team two = team_of(packs, 2);
    if (packs <= 2 * static_cast<std::int64_t>(two.threads)) {
      start_held<S, N, 2>(a, blocks, two.threads, stream);
      return;
    }
  }
  long_backward<S, N><<<blocks, one.threads, 0, stream>>>(a);
}

}  // namespace

std::int64_t layer_norm_parts(std::int64_t rows, std::int64_t hidden) {
  // One wave of blocks: what fits a processor beside each other, if a thread takes 8 columns.
  constexpr std::int64_t kProcessors = 132;
  const std::int64_t team = team_of((hidden + 7) / 8, 1).threads;
  const std::int64_t beside = team > kShortTeam ? 2 : 3 * kShortTeam / team;
  const std::int64_t blocks = kProcessors * (beside < 8 ? beside : 8);
  return rows < blocks ? rows : blocks;
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
  return launch_add_parts(type,
                          {.partial_pf = args.partial_ph,
                           .rows = parts,
                           .width = args.hidden,
                           .targets = {args.weight_grad, args.bias_grad, args.x_sums},
                           .num_targets = kSums},
                          stream);
}

}  // namespace colossal::kernels::cuda
