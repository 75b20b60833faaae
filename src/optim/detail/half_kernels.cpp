// How do the loops over 16-bit numbers reach memory speed? Compiled per instruction set.
#include "optim/detail/half_kernels.hpp"

#include "optim/detail/half_formats.hpp"

namespace colossal::detail {
namespace {

/// Two rounds of multiplication mix each bit of the element's number into every bit of the word.
COLOSSAL_INLINE std::uint32_t random_word(std::uint32_t key, std::uint32_t element) {
  std::uint32_t x = element * 0x9E3779B1U + key;
  x = (x ^ (x >> 16U)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13U)) * 0xC2B2AE35U;
  return x ^ (x >> 16U);
}

template <class T>
COLOSSAL_INLINE void random_loop(T* __restrict values,
                                 std::int64_t count,
                                 const RandomWords& words,
                                 std::uint16_t* __restrict out) {
  const std::uint32_t key = words.key;
  const std::uint32_t shift = words.shift;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = random_word(key, words.first + static_cast<std::uint32_t>(i));
    const std::uint32_t bits = bits_of(static_cast<float>(values[i]));
    const bool special = (bits & kMagnitude) >= kInfinity;
    const bool nan = (bits & kMagnitude) > kInfinity;
    const std::uint32_t finite = (bits + ((word >> shift) & 0xFFFFU)) >> 16U;
    const std::uint32_t half = special ? (bits >> 16U) | (nan ? kQuiet : 0U) : finite;
    out[i] = static_cast<std::uint16_t>(half);
    values[i] = static_cast<T>(float_of(half << 16U));
  }
}

}  // namespace

#define COLOSSAL_FOR_TYPE(T)                                                                      \
  COLOSSAL_CLONES                                                                                 \
  void widen(HalfFormat format, const std::uint16_t* in, std::int64_t count, T* out) {            \
    format == HalfFormat::bf16 ? widen_loop<Bf16>(in, count, out)                                 \
                               : widen_loop<Fp16>(in, count, out);                                \
  }                                                                                               \
                                                                                                  \
  COLOSSAL_CLONES                                                                                 \
  void round_to_nearest(HalfFormat format, const T* in, std::int64_t count, std::uint16_t* out) { \
    format == HalfFormat::bf16 ? round_loop<Bf16>(in, count, out)                                 \
                               : round_loop<Fp16>(in, count, out);                                \
  }                                                                                               \
                                                                                                  \
  COLOSSAL_CLONES                                                                                 \
  void round_at_random(                                                                           \
      T* values, std::int64_t count, const RandomWords& words, std::uint16_t* out) {              \
    random_loop(values, count, words, out);                                                       \
  }

COLOSSAL_FOR_TYPE(float)
COLOSSAL_FOR_TYPE(double)
#undef COLOSSAL_FOR_TYPE

}  // namespace colossal::detail
