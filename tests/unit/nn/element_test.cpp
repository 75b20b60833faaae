// Are numbers of 16 bits read exactly and written to the nearest even one? All of them are tried.
#include "nn/kernels/element.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <limits>

namespace colossal::test {
namespace {

constexpr std::uint32_t kPatterns = 1U << 16U;

template <class S>
S from_bits(std::uint32_t bits) {
  return {static_cast<std::uint16_t>(bits), S::from_bits()};
}

/// Whether store() agrees with the conversion of c10, any NaN being as good as another.
template <class S>
bool rounds_like_c10(float x) {
  const S ours = kernels::store<S>(x);
  const S theirs(x);
  return std::isnan(x) ? std::isnan(static_cast<float>(ours)) : ours.x == theirs.x;
}

/// Number of 16-bit patterns that load() or store() gets wrong.
template <class S>
int wrong_patterns() {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const S element = from_bits<S>(bits);
    const float value = kernels::load(element);
    const auto expected = static_cast<float>(element);
    if (std::isnan(expected)) {
      wrong +=
          std::isnan(value) && std::isnan(static_cast<float>(kernels::store<S>(value))) ? 0 : 1;
    } else {
      const bool same = value == expected && std::signbit(value) == std::signbit(expected);
      wrong += same && kernels::store<S>(value).x == element.x ? 0 : 1;
    }
  }
  return wrong;
}

/// Number of fp32 values around every 16-bit number that are rounded differently from c10.
template <class S>
int wrong_roundings() {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits + 1 < kPatterns; ++bits) {
    const auto low = static_cast<float>(from_bits<S>(bits));
    const auto high = static_cast<float>(from_bits<S>(bits + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) {
      continue;
    }
    const float middle = low / 2 + high / 2;  // exact: a tie
    for (const float x : {low,
                          std::nextafter(low, high),
                          std::nextafter(middle, low),
                          middle,
                          std::nextafter(middle, high)}) {
      wrong += rounds_like_c10<S>(x) ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("every number of 16 bits is read exactly and written back", "[kernels]") {
  CHECK(wrong_patterns<c10::BFloat16>() == 0);
  CHECK(wrong_patterns<c10::Half>() == 0);
}

TEST_CASE("stores round to the nearest even number, also between subnormal ones", "[kernels]") {
  CHECK(wrong_roundings<c10::BFloat16>() == 0);
  CHECK(wrong_roundings<c10::Half>() == 0);
}

TEST_CASE("stores beyond the range give infinity, below it zero, and keep NaN", "[kernels]") {
  constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {65504.0F,
                        65519.9F,
                        65520.0F,
                        65536.0F,
                        1e30F,
                        kFloatInfinity,
                        0x1p-24F,
                        0x1p-25F,
                        0x1.8p-25F,
                        0x1p-26F,
                        1e-40F,
                        std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    for (const float sign : {1.0F, -1.0F}) {
      INFO(x * sign);
      CHECK(rounds_like_c10<c10::Half>(x * sign));
      CHECK(rounds_like_c10<c10::BFloat16>(x * sign));
    }
  }
  CHECK(kernels::store<c10::Half>(65520.0F).x == 0x7C00);
  CHECK(kernels::store<c10::Half>(-1e30F).x == 0xFC00);
}

TEST_CASE("wider elements are left as they are", "[kernels]") {
  CHECK(kernels::store<double>(kernels::load(0.1)) == 0.1);
  CHECK(kernels::store<float>(kernels::load(0.1F)) == 0.1F);
  CHECK(wide_dtype(at::kBFloat16) == at::kFloat);
  CHECK(wide_dtype(at::kHalf) == at::kFloat);
  CHECK(wide_dtype(at::kFloat) == at::kFloat);
  CHECK(wide_dtype(at::kDouble) == at::kDouble);
}

}  // namespace colossal::test
