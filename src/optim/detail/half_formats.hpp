// How are 16-bit formats converted by loops that every instruction set can vectorise? With integers
// and selections: no branch, no conversion instruction.
#pragma once

#include "optim/detail/clones.hpp"

#include <bit>
#include <cstdint>

namespace colossal::detail {

inline constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
inline constexpr std::uint32_t kInfinity = 0x7F800000;  // fp32
inline constexpr std::uint32_t kQuiet = 0x40;           // of a NaN in bf16

/// A float as its bits, and back.
COLOSSAL_INLINE std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
COLOSSAL_INLINE float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// bf16: the upper half of a float.
struct Bf16 {
  COLOSSAL_INLINE static float widen(std::uint16_t half) {
    return float_of(std::uint32_t{half} << 16U);
  }
  COLOSSAL_INLINE static std::uint16_t round(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t nearest = (bits + 0x7FFF + ((bits >> 16U) & 1U)) >> 16U;
    const bool nan = (bits & kMagnitude) > kInfinity;
    return static_cast<std::uint16_t>(nan ? (bits >> 16U) | kQuiet : nearest);
  }
};

/// fp16: five bits of exponent, ten of fraction.
struct Fp16 {
  static constexpr std::uint32_t kBias = 112U << 23U;      // difference of the exponents' biases
  static constexpr std::uint32_t kSmallest = 113U << 23U;  // fp32 bits of 2^-14, the least normal
  static constexpr std::uint32_t kTooLarge = 0x477FF000;   // of 65520, which rounds to infinity
  static constexpr float kUnits = 0.5F;                    // its last digit is 2^-24

  COLOSSAL_INLINE static float widen(std::uint16_t half) {
    const std::uint32_t sign = (std::uint32_t{half} & 0x8000U) << 16U;
    const std::uint32_t magnitude = (std::uint32_t{half} & 0x7FFFU) << 13U;
    // A subnormal is a fraction without the leading one: put one before it, then subtract it.
    const std::uint32_t subnormal = bits_of(float_of(magnitude + kSmallest) - float_of(kSmallest));
    const std::uint32_t normal = magnitude + kBias;
    const std::uint32_t special = magnitude + 2 * kBias;  // infinite, NaN
    const std::uint32_t wide = magnitude < (1U << 23U)    ? subnormal
                               : magnitude < (31U << 23U) ? normal
                                                          : special;
    return float_of(sign | wide);
  }
  COLOSSAL_INLINE static std::uint16_t round(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & kMagnitude;
    const std::uint32_t normal = (magnitude - kBias + 0xFFF + ((magnitude >> 13U) & 1U)) >> 13U;
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + kUnits) - bits_of(kUnits);
    const std::uint32_t special =
        magnitude > kInfinity ? 0x7E00U | ((magnitude >> 13U) & 0x1FFU) : 0x7C00U;
    const std::uint32_t half = magnitude < kSmallest   ? subnormal
                               : magnitude < kTooLarge ? normal
                                                       : special;
    return static_cast<std::uint16_t>(((bits >> 16U) & 0x8000U) | half);
  }
};

/// The loop of widen().
template <class Format, class T>
COLOSSAL_INLINE void widen_loop(const std::uint16_t* __restrict in,
                                std::int64_t count,
                                T* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(Format::widen(in[i]));
  }
}

/// The loop of round_to_nearest().
template <class Format, class T>
COLOSSAL_INLINE void round_loop(const T* __restrict in,
                                std::int64_t count,
                                std::uint16_t* __restrict out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = Format::round(static_cast<float>(in[i]));
  }
}

}  // namespace colossal::detail
