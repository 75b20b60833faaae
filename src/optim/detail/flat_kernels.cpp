// How do the loops over flat shards reach memory speed? Compiled per instruction set, chosen when
// the program starts.
#include "optim/detail/flat_kernels.hpp"

#include "optim/detail/clones.hpp"

#include <array>
#include <cmath>

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
COLOSSAL_INLINE void lion_loop(T* __restrict param,
                               T* __restrict exp_avg,
                               const T* __restrict grad,
                               std::int64_t count,
                               const LionFactors& factors) {
  const T beta1 = static_cast<T>(factors.beta1);
  const T beta2 = static_cast<T>(factors.beta2);
  const T rest1 = static_cast<T>(1 - factors.beta1);
  const T rest2 = static_cast<T>(1 - factors.beta2);
  const T scale = static_cast<T>(factors.grad);
  const T shrink = static_cast<T>(factors.shrink);
  const T step = static_cast<T>(factors.step);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    const T mixed = beta1 * exp_avg[i] + rest1 * g;
    const T sign = mixed > 0 ? T{1} : mixed < 0 ? T{-1} : mixed;
    exp_avg[i] = beta2 * exp_avg[i] + rest2 * g;
    param[i] = shrink * param[i] - step * sign;
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
void lion(float* param,
          float* exp_avg,
          const float* grad,
          std::int64_t count,
          const LionFactors& factors) {
  lion_loop(param, exp_avg, grad, count, factors);
}

COLOSSAL_CLONES
void lion(double* param,
          double* exp_avg,
          const double* grad,
          std::int64_t count,
          const LionFactors& factors) {
  lion_loop(param, exp_avg, grad, count, factors);
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
