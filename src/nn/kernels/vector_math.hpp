// Which elementary functions may a vector loop call? Branch-free ones, always inlined into the
// caller's instruction set; fp64 (tests, proofs) calls libm.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace colossal::kernels {

/// e^x; fp32: relative error < 2e-7, arguments outside [-87.3, 88.7] saturate, NaN stays NaN.
/// Polynomial of Cephes' expf.
[[nodiscard, gnu::always_inline]] inline float vector_exp(float x) noexcept {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  x = x > 88.7F ? 88.7F : x;
  x = x < -87.3F ? -87.3F : x;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500E-4F;
  p = p * r + 1.3981999507E-3F;
  p = p * r + 8.3334519073E-3F;
  p = p * r + 4.1665795894E-2F;
  p = p * r + 1.6666665459E-1F;
  p = p * r + 5.0000001201E-1F;
  const float e = (p * r) * r + r + 1.0F;
  // the low bits of `shifted` are n: add them to the exponent of e
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23U;
  const float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(e) + exponent);
  return std::isnan(x) ? x : result;  // the sum of bits above can make a number of a NaN
}

/// e^x in full precision.
[[nodiscard, gnu::always_inline]] inline double vector_exp(double x) noexcept {
  return std::exp(x);
}

/// 1 / (1 + e^-x).
template <class T>
[[nodiscard, gnu::always_inline]] inline T vector_sigmoid(T x) noexcept {
  return T{1} / (T{1} + vector_exp(-x));
}

/// erf(x); fp32: absolute error < 5e-7 (Abramowitz and Stegun 7.1.26, as ATen's vector code).
[[nodiscard, gnu::always_inline]] inline float vector_erf(float x) noexcept {
  const float a = x < 0 ? -x : x;
  const float t = 1.0F / (1.0F + 0.3275911F * a);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float r = 1.0F - p * t * vector_exp(-a * a);
  return x < 0 ? -r : r;
}

/// erf(x) in full precision.
[[nodiscard, gnu::always_inline]] inline double vector_erf(double x) noexcept {
  return std::erf(x);
}

}  // namespace colossal::kernels
