// How do 16-bit numbers become wide ones and back, at memory speed? Plain functions over pointers.
#pragma once

#include <cstdint>

namespace colossal::detail {

/// A 16-bit floating-point format; numbers are passed by their bits.
enum class HalfFormat : std::uint8_t { bf16, fp16 };

/// out[i] = in[i], exact.
void widen(HalfFormat format, const std::uint16_t* in, std::int64_t count, float* out);
void widen(HalfFormat format, const std::uint16_t* in, std::int64_t count, double* out);

/// out[i] = in[i] rounded to the nearest, ties to even; what is too large becomes infinite, NaN
/// stays NaN. Doubles are rounded to float first.
void round_to_nearest(HalfFormat format, const float* in, std::int64_t count, std::uint16_t* out);
void round_to_nearest(HalfFormat format, const double* in, std::int64_t count, std::uint16_t* out);

/// Random words of stochastic rounding: one for each (key, element), of which `shift` 0 and 16
/// choose different halves.
struct RandomWords {
  std::uint32_t key = 0;
  std::uint32_t first = 0;  ///< number of element 0
  std::uint32_t shift = 0;
};

/// Rounds values[i] to bf16, up with the probability that makes the mean exact; writes the bits to
/// out[i] and the rounded number back. Infinite values and NaN stay what they are.
void round_at_random(float* values,
                     std::int64_t count,
                     const RandomWords& words,
                     std::uint16_t* out);
void round_at_random(double* values,
                     std::int64_t count,
                     const RandomWords& words,
                     std::uint16_t* out);

}  // namespace colossal::detail
