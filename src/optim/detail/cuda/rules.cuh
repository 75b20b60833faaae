// What does each rule do with one element? The formulas of flat_kernels.cpp in the same order of
// operations; compiled without contraction they give the same bits.
#pragma once

#include "optim/detail/cuda/flat_element.cuh"

namespace colossal::detail::cuda {

/// One element on its way through a rule.
template <class T>
struct Element {
  T param;
  T state[2];
  T grad;
};

/// What a sweep reads and writes.
struct Uses {
  bool param = true;
  bool grad = true;
  bool states = true;
  bool writes_states = true;
  bool writes_param = true;
  bool measures = false;
};

/// The denominator of Adam and LAMB.
template <class T>
__device__ inline T size_of(T v, T correction, T eps, bool inside) {
  return inside ? sqrt(v * correction + eps) : sqrt(v) * correction + eps;
}

template <class T>
struct Adam {
  using Factors = AdamFactors;
  __host__ __device__ static constexpr Uses uses() { return {}; }

  T beta1, beta2, rest1, rest2, scale, l2, shrink, step, correction, eps;
  bool inside;

  __device__ explicit Adam(const Factors& f)
      : beta1(static_cast<T>(f.beta1)),
        beta2(static_cast<T>(f.beta2)),
        rest1(static_cast<T>(1 - f.beta1)),
        rest2(static_cast<T>(1 - f.beta2)),
        scale(static_cast<T>(f.grad)),
        l2(static_cast<T>(f.l2)),
        shrink(static_cast<T>(f.shrink)),
        step(static_cast<T>(f.step)),
        correction(static_cast<T>(f.correction)),
        eps(static_cast<T>(f.eps)),
        inside(f.eps_inside_sqrt) {}

  __device__ void apply(Element<T>& e) const {
    const T scaled = e.grad * scale;
    const T g = l2 != T(0) ? scaled + l2 * e.param : scaled;
    const T m = beta1 * e.state[0] + rest1 * g;
    const T v = beta2 * e.state[1] + rest2 * g * g;
    e.state[0] = m;
    e.state[1] = v;
    e.param = shrink * e.param - step * (m / size_of(v, correction, eps, inside));
  }
};

template <class T>
struct LambTerms {
  T first, correction, eps, decay;
  bool inside;

  __device__ explicit LambTerms(const LambFactors& f)
      : first(static_cast<T>(f.first)),
        correction(static_cast<T>(f.correction)),
        eps(static_cast<T>(f.eps)),
        decay(static_cast<T>(f.decay)),
        inside(f.eps_inside_sqrt) {}

  __device__ T update(const Element<T>& e) const {
    return first * e.state[0] / size_of(e.state[1], correction, eps, inside) + decay * e.param;
  }
};

template <class T>
struct LambMoments {
  using Factors = LambFactors;
  __host__ __device__ static constexpr Uses uses() {
    return {.writes_param = false, .measures = true};
  }

  T beta1, beta2, rest1, rest2, scale;
  LambTerms<T> terms;

  __device__ explicit LambMoments(const Factors& f)
      : beta1(static_cast<T>(f.beta1)),
        beta2(static_cast<T>(f.beta2)),
        rest1(static_cast<T>(1 - f.beta1)),
        rest2(static_cast<T>(1 - f.beta2)),
        scale(static_cast<T>(f.grad)),
        terms(f) {}

  __device__ void apply(Element<T>& e) const {
    const T g = e.grad * scale;
    e.state[0] = beta1 * e.state[0] + rest1 * g;
    e.state[1] = beta2 * e.state[1] + rest2 * g * g;
  }
  /// After states were rounded.
  __device__ T measured(const Element<T>& e) const { return terms.update(e); }
};

template <class T>
struct LambApply {
  using Factors = LambFactors;
  __host__ __device__ static constexpr Uses uses() {
    return {.grad = false, .writes_states = false};
  }

  LambTerms<T> terms;
  T step;

  __device__ explicit LambApply(const Factors& f) : terms(f), step(static_cast<T>(f.step)) {}

  __device__ void apply(Element<T>& e) const { e.param -= step * terms.update(e); }
};

/// With a momentum buffer.
template <class T>
struct MomentumSgd {
  using Factors = SgdFactors;
  __host__ __device__ static constexpr Uses uses() { return {}; }

  T momentum, scale, l2, into, step;
  bool nesterov;

  __device__ explicit MomentumSgd(const Factors& f)
      : momentum(static_cast<T>(f.momentum)),
        scale(static_cast<T>(f.grad)),
        l2(static_cast<T>(f.l2)),
        into(static_cast<T>(f.into)),
        step(static_cast<T>(f.step)),
        nesterov(f.nesterov) {}

  __device__ void apply(Element<T>& e) const {
    const T d = into * (e.grad * scale + l2 * e.param);
    const T moved = momentum * e.state[0] + d;
    e.state[0] = moved;
    e.param -= step * (nesterov ? d + momentum * moved : moved);
  }
};

/// Without.
template <class T>
struct PlainSgd {
  using Factors = SgdFactors;
  __host__ __device__ static constexpr Uses uses() {
    return {.states = false, .writes_states = false};
  }

  T scale, l2, step;

  __device__ explicit PlainSgd(const Factors& f)
      : scale(static_cast<T>(f.grad)),
        l2(static_cast<T>(f.l2)),
        step(static_cast<T>(f.step * f.into)) {}

  __device__ void apply(Element<T>& e) const { e.param -= step * (e.grad * scale + l2 * e.param); }
};

/// Of masters and gradients.
template <class T>
struct MeasureGrad {
  using Factors = Nothing;
  __host__ __device__ static constexpr Uses uses() {
    return {.states = false, .writes_states = false, .writes_param = false, .measures = true};
  }

  __device__ explicit MeasureGrad(const Factors& /*f*/) {}
  __device__ void apply(Element<T>& /*e*/) const {}
  __device__ T measured(const Element<T>& e) const { return e.grad; }
};

}  // namespace colossal::detail::cuda
