// How do the loops over flat shards reach memory speed? Compiled per instruction set, chosen when
// the program starts.
#include "optim/detail/flat_kernels.hpp"

#include <array>
#include <cmath>

#define COLOSSAL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#define COLOSSAL_INLINE __attribute__((always_inline)) inline

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

template <bool kNesterov, class T>
COLOSSAL_INLINE void sgd_loop(T* __restrict param,
                              T* __restrict buffer,
                              const T* __restrict grad,
                              std::int64_t count,
                              const SgdFactors& factors) {
  const T momentum = static_cast<T>(factors.momentum);
  const T scale = static_cast<T>(factors.grad);
  const T l2 = static_cast<T>(factors.l2);
  const T step = static_cast<T>(factors.step);
  for (std::int64_t i = 0; i < count; ++i) {
    const T d = grad[i] * scale + l2 * param[i];
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
  const T step = static_cast<T>(factors.step);
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

/// kLanes running sums keep vector units busy and the order of additions fixed.
template <class T>
COLOSSAL_INLINE double square_loop(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 32;
  std::array<double, kLanes> sums = {};
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
  for (const double sum : sums) {
    total += sum;
  }
  return total;
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
