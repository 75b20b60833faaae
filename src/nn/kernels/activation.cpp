// Nonlinearities with their bias, vectorised for fp32, bf16 and fp16.
#include "nn/kernels/activation.hpp"

#include "nn/kernels/cuda/activation.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/vector_math.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace colossal::kernels {

namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

struct Relu {
  template <class T>
  [[gnu::always_inline]] static T value(T z) noexcept {
    return z < 0 ? T{0} : z;  // a NaN stays one
  }
  template <class T>
  [[gnu::always_inline]] static T slope(T z) noexcept {
    return z > 0 ? T{1} : T{0};
  }
};

/// z * Phi(z).
struct Gelu {
  template <class T>
  [[gnu::always_inline]] static T cdf(T z) noexcept {
    return T{0.5} * (T{1} + vector_erf(z * T(0.70710678118654752440)));
  }
  template <class T>
  [[gnu::always_inline]] static T value(T z) noexcept {
    return z * cdf(z);
  }
  template <class T>
  [[gnu::always_inline]] static T slope(T z) noexcept {
    return cdf(z) + z * T(0.39894228040143267794) * vector_exp(T{-0.5} * z * z);
  }
};

/// 0.5 z (1 + tanh(u)) = z * sigmoid(2u), u = sqrt(2/pi) (z + 0.044715 z^3).
struct GeluTanh {
  template <class T>
  [[gnu::always_inline]] static T gate(T z) noexcept {
    return vector_sigmoid(T(2 * kSqrt2OverPi) * z * (T{1} + T(kGeluCubic) * z * z));
  }
  template <class T>
  [[gnu::always_inline]] static T value(T z) noexcept {
    return z * gate(z);
  }
  template <class T>
  [[gnu::always_inline]] static T slope(T z) noexcept {
    const T s = gate(z);
    const T inner = T(2 * kSqrt2OverPi) * (T{1} + T(3 * kGeluCubic) * z * z);
    return s + z * s * (T{1} - s) * inner;
  }
};

/// Pointers of one call; rows of `width` elements.
template <class S>
struct Rows {
  const S* grad;
  const S* pre;
  const S* bias;
  S* out;
  std::int64_t width;
};

template <class Act, class S>
[[gnu::always_inline]] inline void forward_rows(const Rows<S>& a,
                                                std::int64_t begin,
                                                std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const S* __restrict pre = a.pre + r * a.width;
    const S* __restrict bias = a.bias;
    S* __restrict out = a.out + r * a.width;
    for (std::int64_t i = 0; i < a.width; ++i) {
      out[i] = store<S>(Act::value(load(pre[i]) + load(bias[i])));
    }
  }
}

template <class Act, class S>
[[gnu::always_inline]] inline void backward_rows(const Rows<S>& a,
                                                 Wide<S>* __restrict bias_grad,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const S* __restrict grad = a.grad + r * a.width;
    const S* __restrict pre = a.pre + r * a.width;
    const S* __restrict bias = a.bias;
    S* __restrict out = a.out + r * a.width;
    for (std::int64_t i = 0; i < a.width; ++i) {
      const Wide<S> d = load(grad[i]) * Act::slope(load(pre[i]) + load(bias[i]));
      out[i] = store<S>(d);
      bias_grad[i] += d;
    }
  }
}

template <class S>
[[gnu::always_inline]] inline void forward_kind(ActivationKind kind,
                                                const Rows<S>& a,
                                                std::int64_t begin,
                                                std::int64_t end) {
  if (kind == ActivationKind::gelu) {
    forward_rows<Gelu>(a, begin, end);
  } else if (kind == ActivationKind::gelu_tanh) {
    forward_rows<GeluTanh>(a, begin, end);
  } else {
    forward_rows<Relu>(a, begin, end);
  }
}

template <class S>
[[gnu::always_inline]] inline void backward_kind(ActivationKind kind,
                                                 const Rows<S>& a,
                                                 Wide<S>* bias_grad,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  if (kind == ActivationKind::gelu) {
    backward_rows<Gelu>(a, bias_grad, begin, end);
  } else if (kind == ActivationKind::gelu_tanh) {
    backward_rows<GeluTanh>(a, bias_grad, begin, end);
  } else {
    backward_rows<Relu>(a, bias_grad, begin, end);
  }
}

template <class S>
[[gnu::always_inline]] inline void swiglu_span(const S* __restrict gate,
                                               const S* __restrict up,
                                               S* __restrict out,
                                               std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Wide<S> g = load(gate[i]);
    out[i] = store<S>(g * vector_sigmoid(g) * load(up[i]));
  }
}

/// In: grad, gate, up. Out: gradients of gate and up.
template <class S>
struct SwigluSpan {
  const S* grad;
  const S* gate;
  const S* up;
  S* gate_grad;
  S* up_grad;
};

template <class S>
[[gnu::always_inline]] inline void swiglu_backward_span(const SwigluSpan<S>& a,
                                                        std::int64_t begin,
                                                        std::int64_t end) {
  using T = Wide<S>;
  const S* __restrict grad = a.grad;
  const S* __restrict gate = a.gate;
  const S* __restrict up = a.up;
  S* __restrict gate_grad = a.gate_grad;
  S* __restrict up_grad = a.up_grad;
  for (std::int64_t i = begin; i < end; ++i) {
    const T d = load(grad[i]);
    const T g = load(gate[i]);
    const T s = vector_sigmoid(g);
    gate_grad[i] = store<S>(d * load(up[i]) * s * (T{1} + g * (T{1} - s)));
    up_grad[i] = store<S>(d * g * s);
  }
}

// One entry per dtype: target_clones works on plain functions only, and fp64 needs no vectors.

COLOSSAL_VECTOR_CLONES void forward(ActivationKind k,
                                    const Rows<float>& a,
                                    std::int64_t b,
                                    std::int64_t e) {
  forward_kind(k, a, b, e);
}
void forward(ActivationKind k, const Rows<double>& a, std::int64_t b, std::int64_t e) {
  forward_kind(k, a, b, e);
}
COLOSSAL_VECTOR_CLONES void forward(ActivationKind k,
                                    const Rows<c10::BFloat16>& a,
                                    std::int64_t b,
                                    std::int64_t e) {
  forward_kind(k, a, b, e);
}
COLOSSAL_VECTOR_CLONES void forward(ActivationKind k,
                                    const Rows<c10::Half>& a,
                                    std::int64_t b,
                                    std::int64_t e) {
  forward_kind(k, a, b, e);
}
COLOSSAL_VECTOR_CLONES void backward(
    ActivationKind k, const Rows<float>& a, float* db, std::int64_t b, std::int64_t e) {
  backward_kind(k, a, db, b, e);
}
void backward(ActivationKind k, const Rows<double>& a, double* db, std::int64_t b, std::int64_t e) {
  backward_kind(k, a, db, b, e);
}
COLOSSAL_VECTOR_CLONES void backward(
    ActivationKind k, const Rows<c10::BFloat16>& a, float* db, std::int64_t b, std::int64_t e) {
  backward_kind(k, a, db, b, e);
}
COLOSSAL_VECTOR_CLONES void backward(
    ActivationKind k, const Rows<c10::Half>& a, float* db, std::int64_t b, std::int64_t e) {
  backward_kind(k, a, db, b, e);
}
COLOSSAL_VECTOR_CLONES void swiglu(const float* gate, const float* up, float* out, std::int64_t n) {
  swiglu_span(gate, up, out, n);
}
void swiglu(const double* gate, const double* up, double* out, std::int64_t n) {
  swiglu_span(gate, up, out, n);
}
COLOSSAL_VECTOR_CLONES void swiglu(const c10::BFloat16* gate,
                                   const c10::BFloat16* up,
                                   c10::BFloat16* out,
                                   std::int64_t n) {
  swiglu_span(gate, up, out, n);
}
COLOSSAL_VECTOR_CLONES void swiglu(const c10::Half* gate,
                                   const c10::Half* up,
                                   c10::Half* out,
                                   std::int64_t n) {
  swiglu_span(gate, up, out, n);
}
COLOSSAL_VECTOR_CLONES void swiglu_grad(const SwigluSpan<float>& a,
                                        std::int64_t b,
                                        std::int64_t e) {
  swiglu_backward_span(a, b, e);
}
void swiglu_grad(const SwigluSpan<double>& a, std::int64_t b, std::int64_t e) {
  swiglu_backward_span(a, b, e);
}
COLOSSAL_VECTOR_CLONES void swiglu_grad(const SwigluSpan<c10::BFloat16>& a,
                                        std::int64_t b,
                                        std::int64_t e) {
  swiglu_backward_span(a, b, e);
}
COLOSSAL_VECTOR_CLONES void swiglu_grad(const SwigluSpan<c10::Half>& a,
                                        std::int64_t b,
                                        std::int64_t e) {
  swiglu_backward_span(a, b, e);
}

}  // namespace

at::Tensor bias_act_forward(const at::Tensor& pre_mf,
                            const at::Tensor& bias_f,
                            ActivationKind kind) {
  if (pre_mf.is_cuda()) {
    return cuda::bias_act_forward(pre_mf, bias_f, kind);
  }
  at::Tensor out_mf = at::empty_like(pre_mf);
  with_floating(pre_mf, [&]<class T>(T) {
    const Rows<T> rows{nullptr,
                       pre_mf.const_data_ptr<T>(),
                       bias_f.const_data_ptr<T>(),
                       out_mf.mutable_data_ptr<T>(),
                       pre_mf.size(1)};
    parallel_rows(pre_mf.size(0), rows.width, [&](std::int64_t begin, std::int64_t end) {
      forward(kind, rows, begin, end);
    });
  });
  return out_mf;
}

BiasActGrad bias_act_backward(const at::Tensor& grad_mf,
                              const at::Tensor& pre_mf,
                              const at::Tensor& bias_f,
                              ActivationKind kind) {
  if (pre_mf.is_cuda()) {
    return cuda::bias_act_backward(grad_mf, pre_mf, bias_f, kind);
  }
  at::Tensor out_mf = at::empty_like(pre_mf);
  // one partial sum per thread, added in thread order: the result depends on their number only
  at::Tensor sums = at::zeros({at::get_num_threads(), pre_mf.size(1)},
                              pre_mf.options().dtype(wide_dtype(pre_mf.scalar_type())));
  with_floating(pre_mf, [&]<class T>(T) {
    const Rows<T> rows{grad_mf.const_data_ptr<T>(),
                       pre_mf.const_data_ptr<T>(),
                       bias_f.const_data_ptr<T>(),
                       out_mf.mutable_data_ptr<T>(),
                       pre_mf.size(1)};
    auto* const partial = sums.mutable_data_ptr<Wide<T>>();
    parallel_rows(pre_mf.size(0), rows.width, [&](std::int64_t begin, std::int64_t end) {
      backward(kind, rows, partial + at::get_thread_num() * rows.width, begin, end);
    });
  });
  return {std::move(out_mf), sums.sum(0)};
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) {
  if (gate.is_cuda()) {
    return cuda::swiglu_forward(gate, up);
  }
  at::Tensor out = at::empty_like(gate);
  with_floating(gate, [&]<class T>(T) {
    const T* const g = gate.const_data_ptr<T>();
    const T* const u = up.const_data_ptr<T>();
    T* const o = out.mutable_data_ptr<T>();
    parallel_rows(gate.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      swiglu(g + begin, u + begin, o + begin, end - begin);
    });
  });
  return out;
}

SwigluGrad swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  if (gate.is_cuda()) {
    return cuda::swiglu_backward(grad, gate, up);
  }
  SwigluGrad result{at::empty_like(gate), at::empty_like(up)};
  with_floating(gate, [&]<class T>(T) {
    const SwigluSpan<T> span{grad.const_data_ptr<T>(),
                             gate.const_data_ptr<T>(),
                             up.const_data_ptr<T>(),
                             result.gate.mutable_data_ptr<T>(),
                             result.up.mutable_data_ptr<T>()};
    parallel_rows(gate.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      swiglu_grad(span, begin, end);
    });
  });
  return result;
}

}  // namespace colossal::kernels
