// How do the loops over flat shards reach memory speed? Compiled per instruction set, chosen when
// the program starts.
#include "optim/detail/flat_kernels.hpp"

#include "optim/detail/half_formats.hpp"

#include <array>
#include <cmath>
#include <type_traits>

namespace colossal::detail {
namespace {

template <bool kEpsInside, bool kL2, class T>
COLOSSAL_INLINE void adam_loop(T* __restrict param,
                               T* __restrict exp_avg,
                               T* __restrict exp_avg_sq,
                               const T* __restrict grad,
                               std::int64_t count,
                               const AdamFactors& factors) {
  const T beta1 = static_cast<T>(factors.beta1);
  const T beta2 = static_cast<T>(factors.beta2);
  const T rest1 = static_cast<T>(1 - factors.beta1);
  const T rest2 = static_cast<T>(1 - factors.beta2);
  const T scale = static_cast<T>(factors.grad);
  const T l2 = static_cast<T>(factors.l2);
  const T shrink = static_cast<T>(factors.shrink);
  const T step = static_cast<T>(factors.step);
  const T correction = static_cast<T>(factors.correction);
  const T eps = static_cast<T>(factors.eps);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = kL2 ? grad[i] * scale + l2 * param[i] : grad[i] * scale;
    const T m = beta1 * exp_avg[i] + rest1 * g;
    const T v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    const T size = kEpsInside ? std::sqrt(v * correction + eps) : std::sqrt(v) * correction + eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = shrink * param[i] - step * (m / size);
  }
}

/// The loop of these factors: choices that are equal for all elements are made outside of it.
template <class T>
COLOSSAL_INLINE void any_adam(T* param,
                              T* exp_avg,
                              T* exp_avg_sq,
                              const T* grad,
                              std::int64_t count,
                              const AdamFactors& factors) {
  const bool l2 = factors.l2 != 0;
  if (factors.eps_inside_sqrt) {
    l2 ? adam_loop<true, true>(param, exp_avg, exp_avg_sq, grad, count, factors)
       : adam_loop<true, false>(param, exp_avg, exp_avg_sq, grad, count, factors);
  } else {
    l2 ? adam_loop<false, true>(param, exp_avg, exp_avg_sq, grad, count, factors)
       : adam_loop<false, false>(param, exp_avg, exp_avg_sq, grad, count, factors);
  }
}

constexpr std::int64_t kBlock = 64;   // elements of which a loop of vectors is made
constexpr std::int64_t kAhead = 128;  // elements that are asked for before their turn

/// Gradients of 32 bits, seen as the formats of 16 bits are.
struct Fp32 {
  COLOSSAL_INLINE static float widen(float value) { return value; }
};
/// No working copy.
struct NoCopy {};

/// The arrays of adam_mixed() from one element on.
template <class G>
struct MixedView {
  float* __restrict param;
  float* __restrict exp_avg;
  float* __restrict exp_avg_sq;
  const G* __restrict grad;
  std::uint16_t* __restrict working;

  [[nodiscard]] COLOSSAL_INLINE MixedView at(std::int64_t i) const {
    return {param + i, exp_avg + i, exp_avg_sq + i, grad + i, working + i};
  }

  /// Asks for the arrays of a later block: five streams are more than the hardware follows over the
  /// borders of pages.
  template <bool kCopies>
  COLOSSAL_INLINE void ask_for() const {
    constexpr std::int64_t kLine = 64;  // bytes
    constexpr auto kFloats = kLine / static_cast<std::int64_t>(sizeof(float));
    constexpr auto kGrads = kLine / static_cast<std::int64_t>(sizeof(G));
    constexpr auto kHalves = kLine / static_cast<std::int64_t>(sizeof(std::uint16_t));
    for (std::int64_t i = 0; i < kBlock; i += kFloats) {
      __builtin_prefetch(param + i, 1);
      __builtin_prefetch(exp_avg + i, 1);
      __builtin_prefetch(exp_avg_sq + i, 1);
    }
    for (std::int64_t i = 0; i < kBlock; i += kGrads) {
      __builtin_prefetch(grad + i, 0);
    }
    for (std::int64_t i = 0; kCopies && i < kBlock; i += kHalves) {
      __builtin_prefetch(working + i, 1);
    }
  }
};

/// adam_loop() of widened gradients, then the rounded copy.
template <bool kEpsInside, bool kL2, class Grad, class Copy, class G>
COLOSSAL_INLINE void mixed_block(const MixedView<G>& view,
                                 std::int64_t count,
                                 const AdamFactors& factors) {
  const auto beta1 = static_cast<float>(factors.beta1);
  const auto beta2 = static_cast<float>(factors.beta2);
  const auto rest1 = static_cast<float>(1 - factors.beta1);
  const auto rest2 = static_cast<float>(1 - factors.beta2);
  const auto scale = static_cast<float>(factors.grad);
  const auto l2 = static_cast<float>(factors.l2);
  const auto shrink = static_cast<float>(factors.shrink);
  const auto step = static_cast<float>(factors.step);
  const auto correction = static_cast<float>(factors.correction);
  const auto eps = static_cast<float>(factors.eps);
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = Grad::widen(view.grad[i]) * scale;
    const float g = kL2 ? scaled + l2 * view.param[i] : scaled;
    const float m = beta1 * view.exp_avg[i] + rest1 * g;
    const float v = beta2 * view.exp_avg_sq[i] + rest2 * g * g;
    const float size =
        kEpsInside ? std::sqrt(v * correction + eps) : std::sqrt(v) * correction + eps;
    const float p = shrink * view.param[i] - step * (m / size);
    view.exp_avg[i] = m;
    view.exp_avg_sq[i] = v;
    view.param[i] = p;
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      view.working[i] = Copy::round(p);
    }
  }
}

template <bool kEpsInside, bool kL2, class Grad, class Copy, class G>
COLOSSAL_INLINE void mixed_loop(const MixedView<G>& view,
                                std::int64_t count,
                                const AdamFactors& factors) {
  constexpr bool kCopies = !std::is_same_v<Copy, NoCopy>;
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    view.at(i + kAhead).template ask_for<kCopies>();
    mixed_block<kEpsInside, kL2, Grad, Copy>(view.at(i), kBlock, factors);
  }
  mixed_block<kEpsInside, kL2, Grad, Copy>(view.at(i), count - i, factors);
}

template <class Grad, class Copy, class G>
COLOSSAL_INLINE void any_mixed(const MixedView<G>& view,
                               std::int64_t count,
                               const AdamFactors& factors) {
  const bool l2 = factors.l2 != 0;
  if (factors.eps_inside_sqrt) {
    l2 ? mixed_loop<true, true, Grad, Copy>(view, count, factors)
       : mixed_loop<true, false, Grad, Copy>(view, count, factors);
  } else {
    l2 ? mixed_loop<false, true, Grad, Copy>(view, count, factors)
       : mixed_loop<false, false, Grad, Copy>(view, count, factors);
  }
}

template <class Grad, class G>
COLOSSAL_INLINE void any_copy(const MixedArrays& arrays,
                              const G* grad,
                              std::int64_t count,
                              const AdamFactors& factors) {
  const MixedView<G> view{arrays.param, arrays.exp_avg, arrays.exp_avg_sq, grad, arrays.working};
  if (arrays.working == nullptr) {
    any_mixed<Grad, NoCopy>(view, count, factors);
  } else if (arrays.working_format == HalfFormat::bf16) {
    any_mixed<Grad, Bf16>(view, count, factors);
  } else {
    any_mixed<Grad, Fp16>(view, count, factors);
  }
}

template <class T>
COLOSSAL_INLINE void moments_loop(T* __restrict exp_avg,
                                  T* __restrict exp_avg_sq,
                                  const T* __restrict grad,
                                  std::int64_t count,
                                  const LambFactors& factors) {
  const T beta1 = static_cast<T>(factors.beta1);
  const T beta2 = static_cast<T>(factors.beta2);
  const T rest1 = static_cast<T>(1 - factors.beta1);
  const T rest2 = static_cast<T>(1 - factors.beta2);
  const T scale = static_cast<T>(factors.grad);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    exp_avg[i] = beta1 * exp_avg[i] + rest1 * g;
    exp_avg_sq[i] = beta2 * exp_avg_sq[i] + rest2 * g * g;
  }
}

/// The factors of u in the type of the arrays.
template <class T>
struct LambTerms {
  T first;
  T correction;
  T eps;
  T decay;

  explicit LambTerms(const LambFactors& factors)
      : first(static_cast<T>(factors.first)),
        correction(static_cast<T>(factors.correction)),
        eps(static_cast<T>(factors.eps)),
        decay(static_cast<T>(factors.decay)) {}

  template <bool kEpsInside>
  COLOSSAL_INLINE T update(T p, T m, T v) const {
    const T size = kEpsInside ? std::sqrt(v * correction + eps) : std::sqrt(v) * correction + eps;
    return first * m / size + decay * p;
  }
};

constexpr std::int64_t kLanes = 32;  // running sums, which keep vector units busy
using Lanes = std::array<double, kLanes>;

/// Adds lanes in a fixed order.
COLOSSAL_INLINE double total_of(const Lanes& lanes) {
  double total = 0;
  for (const double lane : lanes) {
    total += lane;
  }
  return total;
}

template <bool kEpsInside, class T>
COLOSSAL_INLINE Squares lamb_square_loop(const T* __restrict param,
                                         const T* __restrict exp_avg,
                                         const T* __restrict exp_avg_sq,
                                         std::int64_t count,
                                         const LambTerms<T>& terms) {
  Lanes weights = {};
  Lanes updates = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const T p = param[i + lane];
      const auto u = static_cast<double>(
          terms.template update<kEpsInside>(p, exp_avg[i + lane], exp_avg_sq[i + lane]));
      const auto w = static_cast<double>(p);
      weights[static_cast<std::size_t>(lane)] += w * w;
      updates[static_cast<std::size_t>(lane)] += u * u;
    }
  }
  Squares rest;
  for (; i < count; ++i) {
    const auto u =
        static_cast<double>(terms.template update<kEpsInside>(param[i], exp_avg[i], exp_avg_sq[i]));
    const auto w = static_cast<double>(param[i]);
    rest.weights += w * w;
    rest.update += u * u;
  }
  return {.weights = rest.weights + total_of(weights), .update = rest.update + total_of(updates)};
}

template <class T>
COLOSSAL_INLINE Squares any_lamb_squares(const T* param,
                                         const T* exp_avg,
                                         const T* exp_avg_sq,
                                         std::int64_t count,
                                         const LambFactors& factors) {
  const LambTerms<T> terms(factors);
  return factors.eps_inside_sqrt
             ? lamb_square_loop<true>(param, exp_avg, exp_avg_sq, count, terms)
             : lamb_square_loop<false>(param, exp_avg, exp_avg_sq, count, terms);
}

template <bool kEpsInside, class T>
COLOSSAL_INLINE void lamb_apply_loop(T* __restrict param,
                                     const T* __restrict exp_avg,
                                     const T* __restrict exp_avg_sq,
                                     std::int64_t count,
                                     const LambFactors& factors) {
  const LambTerms<T> terms(factors);
  const T step = static_cast<T>(factors.step);
  for (std::int64_t i = 0; i < count; ++i) {
    param[i] -= step * terms.template update<kEpsInside>(param[i], exp_avg[i], exp_avg_sq[i]);
  }
}

template <class T>
COLOSSAL_INLINE void any_lamb_apply(T* param,
                                    const T* exp_avg,
                                    const T* exp_avg_sq,
                                    std::int64_t count,
                                    const LambFactors& factors) {
  factors.eps_inside_sqrt ? lamb_apply_loop<true>(param, exp_avg, exp_avg_sq, count, factors)
                          : lamb_apply_loop<false>(param, exp_avg, exp_avg_sq, count, factors);
}

template <bool kNesterov, class T>
COLOSSAL_INLINE void sgd_loop(T* __restrict param,
                              T* __restrict buffer,
                              const T* __restrict grad,
                              std::int64_t count,
                              const SgdFactors& factors) {
  const T momentum = static_cast<T>(factors.momentum);
  const T scale = static_cast<T>(factors.grad);
  const T l2 = static_cast<T>(factors.l2);
  const T into = static_cast<T>(factors.into);
  const T step = static_cast<T>(factors.step);
  for (std::int64_t i = 0; i < count; ++i) {
    const T d = into * (grad[i] * scale + l2 * param[i]);
    const T moved = momentum * buffer[i] + d;
    buffer[i] = moved;
    param[i] -= step * (kNesterov ? d + momentum * moved : moved);
  }
}

template <class T>
COLOSSAL_INLINE void plain_sgd_loop(T* __restrict param,
                                    const T* __restrict grad,
                                    std::int64_t count,
                                    const SgdFactors& factors) {
  const T scale = static_cast<T>(factors.grad);
  const T l2 = static_cast<T>(factors.l2);
  const T step = static_cast<T>(factors.step * factors.into);
  for (std::int64_t i = 0; i < count; ++i) {
    param[i] -= step * (grad[i] * scale + l2 * param[i]);
  }
}

template <class T>
COLOSSAL_INLINE void any_sgd(
    T* param, T* buffer, const T* grad, std::int64_t count, const SgdFactors& factors) {
  if (buffer == nullptr) {
    plain_sgd_loop(param, grad, count, factors);
  } else if (factors.nesterov) {
    sgd_loop<true>(param, buffer, grad, count, factors);
  } else {
    sgd_loop<false>(param, buffer, grad, count, factors);
  }
}

template <class T>
COLOSSAL_INLINE double square_loop(const T* values, std::int64_t count) {
  Lanes sums = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  double total = 0;
  for (; i < count; ++i) {
    total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return total + total_of(sums);
}

}  // namespace

COLOSSAL_CLONES
void adam(float* param,
          float* exp_avg,
          float* exp_avg_sq,
          const float* grad,
          std::int64_t count,
          const AdamFactors& factors) {
  any_adam(param, exp_avg, exp_avg_sq, grad, count, factors);
}

COLOSSAL_CLONES
void adam(double* param,
          double* exp_avg,
          double* exp_avg_sq,
          const double* grad,
          std::int64_t count,
          const AdamFactors& factors) {
  any_adam(param, exp_avg, exp_avg_sq, grad, count, factors);
}

COLOSSAL_CLONES
void adam_mixed(const MixedArrays& arrays, std::int64_t count, const AdamFactors& factors) {
  if (arrays.half_grad == nullptr) {
    any_copy<Fp32>(arrays, arrays.grad, count, factors);
  } else if (arrays.grad_format == HalfFormat::bf16) {
    any_copy<Bf16>(arrays, arrays.half_grad, count, factors);
  } else {
    any_copy<Fp16>(arrays, arrays.half_grad, count, factors);
  }
}

COLOSSAL_CLONES
void lamb_moments(float* exp_avg,
                  float* exp_avg_sq,
                  const float* grad,
                  std::int64_t count,
                  const LambFactors& factors) {
  moments_loop(exp_avg, exp_avg_sq, grad, count, factors);
}

COLOSSAL_CLONES
Squares lamb_squares(const float* param,
                     const float* exp_avg,
                     const float* exp_avg_sq,
                     std::int64_t count,
                     const LambFactors& factors) {
  return any_lamb_squares(param, exp_avg, exp_avg_sq, count, factors);
}

COLOSSAL_CLONES
void lamb_apply(float* param,
                const float* exp_avg,
                const float* exp_avg_sq,
                std::int64_t count,
                const LambFactors& factors) {
  any_lamb_apply(param, exp_avg, exp_avg_sq, count, factors);
}

COLOSSAL_CLONES
void lamb_moments(double* exp_avg,
                  double* exp_avg_sq,
                  const double* grad,
                  std::int64_t count,
                  const LambFactors& factors) {
  moments_loop(exp_avg, exp_avg_sq, grad, count, factors);
}

COLOSSAL_CLONES
Squares lamb_squares(const double* param,
                     const double* exp_avg,
                     const double* exp_avg_sq,
                     std::int64_t count,
                     const LambFactors& factors) {
  return any_lamb_squares(param, exp_avg, exp_avg_sq, count, factors);
}

COLOSSAL_CLONES
void lamb_apply(double* param,
                const double* exp_avg,
                const double* exp_avg_sq,
                std::int64_t count,
                const LambFactors& factors) {
  any_lamb_apply(param, exp_avg, exp_avg_sq, count, factors);
}

COLOSSAL_CLONES
void sgd(
    float* param, float* buffer, const float* grad, std::int64_t count, const SgdFactors& factors) {
  any_sgd(param, buffer, grad, count, factors);
}

COLOSSAL_CLONES
void sgd(double* param,
         double* buffer,
         const double* grad,
         std::int64_t count,
         const SgdFactors& factors) {
  any_sgd(param, buffer, grad, count, factors);
}

COLOSSAL_CLONES
double sum_of_squares(const float* values, std::int64_t count) {
  return square_loop(values, count);
}

COLOSSAL_CLONES
double sum_of_squares(const double* values, std::int64_t count) {
  return square_loop(values, count);
}

}  // namespace colossal::detail
