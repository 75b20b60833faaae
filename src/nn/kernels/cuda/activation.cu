// Nonlinearities with their bias: a thread keeps its pack of the bias and goes down the rows.
#include "nn/kernels/cuda/activation_launch.hpp"
#include "nn/kernels/cuda/columns.cuh"
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/math.cuh"

namespace colossal::kernels::cuda {

namespace {

struct Relu {
  template <class M, class T>
  __device__ static T value(T z) {
    return z < 0 ? T(0) : z;  // NaN stays
  }
  template <class M, class T>
  __device__ static T slope(T z) {
    return z > 0 ? T(1) : T(0);
  }
};

/// z * Phi(z).
struct Gelu {
  template <class M, class T>
  __device__ static T cdf(T z) {
    return T(0.5) * (T(1) + M::erf(z * T(0.70710678118654752440)));
  }
  template <class M, class T>
  __device__ static T value(T z) {
    return z * cdf<M>(z);
  }
  template <class M, class T>
  __device__ static T slope(T z) {
    return cdf<M>(z) + z * T(0.39894228040143267794) * M::exp(T(-0.5) * z * z);
  }
};

/// z * sigmoid(2u), u = sqrt(2/pi) (z + 0.044715 z^3).
struct GeluTanh {
  static constexpr double kTwoSqrt2OverPi = 2 * 0.79788456080286535588;
  static constexpr double kCubic = 0.044715;
  template <class M, class T>
  __device__ static T gate(T z) {
    return M::sigmoid(T(kTwoSqrt2OverPi) * z * (T(1) + T(kCubic) * z * z));
  }
  template <class M, class T>
  __device__ static T value(T z) {
    return z * gate<M>(z);
  }
  template <class M, class T>
  __device__ static T slope(T z) {
    const T s = gate<M>(z);
    const T inner = T(kTwoSqrt2OverPi) * (T(1) + T(3 * kCubic) * z * z);
    return s + z * s * (T(1) - s) * inner;
  }
};

template <class S>
struct Rows {
  const S* grad;
  const S* pre;
  const S* bias;
  S* out;
  Wide<S>* partial;
  std::int64_t rows;
  std::int64_t width;
};

/// act(pre + bias).
template <class Act, class S, int N>
__device__ inline Pack<S, N> activated(const Pack<S, N>& pre, const Pack<S, N>& bias) {
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    out.at[i] = store<S>(Act::template value<Math<S>>(load(pre.at[i]) + load(bias.at[i])));
  }
  return out;
}

/// grad act'(pre + bias), added to `sums` before it is rounded.
template <class Act, class S, int N>
__device__ inline Pack<S, N> sloped(const Pack<S, N>& grad,
                                    const Pack<S, N>& pre,
                                    const Pack<S, N>& bias,
                                    Wide<S> (&sums)[N]) {
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    const Wide<S> d =
        load(grad.at[i]) * Act::template slope<Math<S>>(load(pre.at[i]) + load(bias.at[i]));
    out.at[i] = store<S>(d);
    sums[i] += d;
  }
  return out;
}

template <class Act, bool kBackward, class S, int N>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads, kColumnBlocks)
    bias_act_kernel(Rows<S> a) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * N;
  const bool inside = column < a.width;
  const Pack<S, N> bias =
      inside && a.bias != nullptr ? load_pack<N>(a.bias + column) : Pack<S, N>{};
  Wide<S> sums[N] = {};
  for_rows<4>(inside ? a.rows : 0, [&](std::int64_t r) {
    const std::int64_t at = r * a.width + column;
    const Pack<S, N> pre = load_pack<N>(a.pre + at);
    if constexpr (kBackward) {
      const Pack<S, N> grad = load_pack<N>(a.grad + at);
      store_pack<N>(a.out + at, sloped<Act, S, N>(grad, pre, bias, sums));
    } else {
      store_pack<N>(a.out + at, activated<Act, S, N>(pre, bias));
    }
  });
  if constexpr (kBackward) {
    store_block_sums<N>(sums, column, a.width, a.partial + blockIdx.y * a.width);
  }
}

template <class Act, bool kBackward, class S, int N>
void start(const Rows<S>& rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(column_blocks(rows.width, N)),
                  static_cast<unsigned>(row_blocks(rows.rows, rows.width, kPack<S>)));
  bias_act_kernel<Act, kBackward, S, N>
      <<<grid, dim3(kColumnThreads, kRowThreads), 0, stream>>>(rows);
}

template <bool kBackward, class S, int N>
void start_op(ActivationOp op, const Rows<S>& rows, cudaStream_t stream) {
  switch (op) {
    case ActivationOp::gelu:
      return start<Gelu, kBackward, S, N>(rows, stream);
    case ActivationOp::gelu_tanh:
      return start<GeluTanh, kBackward, S, N>(rows, stream);
    case ActivationOp::relu:
      return start<Relu, kBackward, S, N>(rows, stream);
  }
}

template <bool kBackward>
cudaError_t launch(ElementType type, const BiasAct& args, cudaStream_t stream) {
  return with_type(type, [&]<class S>(S) {
    const Rows<S> rows{static_cast<const S*>(args.grad),
                       static_cast<const S*>(args.pre),
                       static_cast<const S*>(args.bias),
                       static_cast<S*>(args.out),
                       static_cast<Wide<S>*>(args.partial),
                       args.rows,
                       args.width};
    const bool packs =
        args.width % kPack<S> == 0 && aligned(rows.grad, rows.pre, rows.bias) && aligned(rows.out);
    packs ? start_op<kBackward, S, kPack<S>>(args.op, rows, stream)
          : start_op<kBackward, S, 1>(args.op, rows, stream);
    return cudaGetLastError();
  });
}

template <class S>
struct Gates {
  const S* grad;
  const S* gate;
  const S* up;
  S* out;
  S* up_grad;
  std::int64_t count;
};

/// Pack of the result at `at`.
template <class S, int N>
__device__ inline void gate_pack(const Gates<S>& a, std::int64_t at) {
  const Pack<S, N> gate = load_pack<N>(a.gate + at);
  const Pack<S, N> up = load_pack<N>(a.up + at);
  Pack<S, N> out;
  for (int i = 0; i < N; ++i) {
    const Wide<S> g = load(gate.at[i]);
    out.at[i] = store<S>(g * Math<S>::sigmoid(g) * load(up.at[i]));
  }
  store_pack<N>(a.out + at, out);
}

/// Packs of both gradients at `at`.
template <class S, int N>
__device__ inline void gate_slopes(const Gates<S>& a, std::int64_t at) {
  using T = Wide<S>;
  const Pack<S, N> grad = load_pack<N>(a.grad + at);
  const Pack<S, N> gate = load_pack<N>(a.gate + at);
  const Pack<S, N> up = load_pack<N>(a.up + at);
  Pack<S, N> gate_grad;
  Pack<S, N> up_grad;
  for (int i = 0; i < N; ++i) {
    const T d = load(grad.at[i]);
    const T g = load(gate.at[i]);
    const T s = Math<S>::sigmoid(g);
    gate_grad.at[i] = store<S>(d * load(up.at[i]) * s * (T(1) + g * (T(1) - s)));
    up_grad.at[i] = store<S>(d * g * s);
  }
  store_pack<N>(a.out + at, gate_grad);
  store_pack<N>(a.up_grad + at, up_grad);
}

template <bool kBackward, class S, int N>
__global__ void swiglu_kernel(Gates<S> a) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
       at < a.count;
       at += step) {
    if constexpr (kBackward) {
      gate_slopes<S, N>(a, at);
    } else {
      gate_pack<S, N>(a, at);
    }
  }
}

template <bool kBackward, class S, int N>
void start_swiglu(const Gates<S>& gates, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const std::int64_t blocks = (gates.count + kThreads * N - 1) / (kThreads * N);
  swiglu_kernel<kBackward, S, N><<<grid_of(blocks), kThreads, 0, stream>>>(gates);
}

template <bool kBackward>
cudaError_t launch(ElementType type, const Swiglu& args, cudaStream_t stream) {
  return with_type(type, [&]<class S>(S) {
    const Gates<S> gates{static_cast<const S*>(args.grad),
                         static_cast<const S*>(args.gate),
                         static_cast<const S*>(args.up),
                         static_cast<S*>(args.out),
                         static_cast<S*>(args.up_grad),
                         args.count};
    const bool packs = args.count % kPack<S> == 0 && aligned(gates.grad, gates.gate, gates.up) &&
                       aligned(gates.out, gates.up_grad);
    packs ? start_swiglu<kBackward, S, kPack<S>>(gates, stream)
          : start_swiglu<kBackward, S, 1>(gates, stream);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t launch_bias_act(ElementType type, const BiasAct& args, cudaStream_t stream) {
  return args.rows * args.width == 0 ? cudaSuccess : launch<false>(type, args, stream);
}

cudaError_t launch_bias_act_backward(ElementType type, const BiasAct& args, cudaStream_t stream) {
  if (args.width == 0) {
    return cudaSuccess;
  }
  const cudaError_t first = launch<true>(type, args, stream);
  return first != cudaSuccess
             ? first
             : launch_add_parts(type,
                                {.partial_pf = args.partial,
                                 .rows = column_parts(args.rows, args.width, type),
                                 .width = args.width,
                                 .targets = {{.out = args.bias_grad, .type = wide_type(type)}},
                                 .num_targets = 1},
                                stream);
}

cudaError_t launch_swiglu(ElementType type, const Swiglu& args, cudaStream_t stream) {
  return args.count == 0 ? cudaSuccess : launch<false>(type, args, stream);
}

cudaError_t launch_swiglu_backward(ElementType type, const Swiglu& args, cudaStream_t stream) {
  return args.count == 0 ? cudaSuccess : launch<true>(type, args, stream);
}

}  // namespace colossal::kernels::cuda
