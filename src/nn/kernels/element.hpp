// How does a kernel read and write elements of 16 bits? It computes in fp32: every element is
// widened when it is loaded and rounded to nearest even when it is stored, without branches, so
// that loops stay vector loops.
#pragma once

#include "mesh/dtype.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace colossal::kernels {

/// Whether elements are of 16 bits.
template <class S>
inline constexpr bool kIsHalf = std::is_same_v<S, c10::BFloat16> || std::is_same_v<S, c10::Half>;

/// What a kernel computes in for elements of type S: float for 16 bits, else S.
template <class S>
using Wide = std::conditional_t<kIsHalf<S>, float, S>;

/// x itself: nothing to widen.
[[nodiscard, gnu::always_inline]] inline float load(float x) noexcept {
  return x;
}
/// x itself.
[[nodiscard, gnu::always_inline]] inline double load(double x) noexcept {
  return x;
}
/// The value, exact.
[[nodiscard, gnu::always_inline]] inline float load(c10::BFloat16 x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.x) << 16U);
}
/// The value, exact, subnormal numbers included.
[[nodiscard, gnu::always_inline]] inline float load(c10::Half x) noexcept {
  const std::uint32_t half = x.x;
  const std::uint32_t magnitude = half & 0x7FFFU;
  // exponent and mantissa in the places of fp32, then 2^112 for the difference of the two biases
  const float scaled = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = magnitude >= 0x7C00U ? 0x7F800000U : 0U;  // infinity, NaN
  return std::bit_cast<float>(finite | special | (half & 0x8000U) << 16U);
}

/// x as an element of type S.
template <class S>
[[nodiscard, gnu::always_inline]] inline S store(Wide<S> x) noexcept {
  if constexpr (std::is_same_v<S, c10::BFloat16>) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U;
    const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return {static_cast<std::uint16_t>(nan ? 0x7FC0U : rounded), c10::BFloat16::from_bits()};
  } else if constexpr (std::is_same_v<S, c10::Half>) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    // normal: the exponent moves from bias 127 to 15; a carry out of the mantissa moves it on
    const std::uint32_t normal =
        (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13U & 1U)) >> 13U;
    // subnormal: adding 0.5 shifts the mantissa to its place, and the addition rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
    const std::uint32_t special = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;  // NaN, infinity
    const std::uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
    const std::uint32_t half = magnitude >= 0x47800000U ? special : finite;
    return {static_cast<std::uint16_t>(half | (bits >> 16U & 0x8000U)), c10::Half::from_bits()};
  } else {
    return x;
  }
}

/// `x` in wide_dtype(): itself unless it has 16 bits.
[[nodiscard]] inline at::Tensor widened(const at::Tensor& x) {
  return x.to(wide_dtype(x.scalar_type()));
}

}  // namespace colossal::kernels
