// Which elementary functions does a kernel of a GPU call? CUDA's for fp32 and fp64; for elements of
// 16 bits those of the hardware, whose error of some 1e-6 is far below their rounding.
#pragma once

#include "nn/kernels/cuda/element.cuh"

namespace colossal::kernels::cuda {

/// In full precision of T.
struct Exact {
  __device__ static float exp(float x) { return expf(x); }
  __device__ static double exp(double x) { return ::exp(x); }
  __device__ static float erf(float x) { return erff(x); }
  __device__ static double erf(double x) { return ::erf(x); }
  template <class T>
  __device__ static T sigmoid(T x) {
    return T(1) / (T(1) + exp(-x));
  }
};

/// For 16 bits.
struct Fast {
  __device__ static float exp(float x) { return __expf(x); }
  /// Abramowitz and Stegun 7.1.26, absolute error < 5e-7.
  __device__ static float erf(float x) {
    const float a = fabsf(x);
    const float t = __fdividef(1.0F, 1.0F + 0.3275911F * a);
    float p = 1.061405429F;
    p = p * t - 1.453152027F;
    p = p * t + 1.421413741F;
    p = p * t - 0.284496736F;
    p = p * t + 0.254829592F;
    return copysignf(1.0F - p * t * exp(-a * a), x);
  }
  __device__ static float sigmoid(float x) { return __fdividef(1.0F, 1.0F + exp(-x)); }
};

template <class S>
struct MathOf {
  using Type = Fast;
};
template <>
struct MathOf<float> {
  using Type = Exact;
};
template <>
struct MathOf<double> {
  using Type = Exact;
};
/// The functions for elements of type S.
template <class S>
using Math = typename MathOf<S>::Type;

}  // namespace colossal::kernels::cuda
