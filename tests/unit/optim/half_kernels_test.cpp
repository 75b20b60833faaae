// Are 16-bit numbers widened and rounded exactly as the formats say, by every loop length?
#include "optim/detail/half_kernels.hpp"

#include "core/hash.hpp"
#include "support/catch.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace colossal::detail {
namespace {

constexpr std::int64_t kAll = 1 << 16;

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(kAll);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  return halves;
}

float expected_wide(HalfFormat format, std::uint16_t bits) {
  return format == HalfFormat::bf16
             ? static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits()))
             : static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
}

std::uint16_t expected_half(HalfFormat format, float value) {
  return format == HalfFormat::bf16 ? c10::BFloat16(value).x : c10::Half(value).x;
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b)
                       : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <class T>
void check_widening(HalfFormat format) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<T> wide(kAll);
  widen(format, halves.data(), kAll, wide.data());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    wrong += same(expected_wide(format, halves[i]), static_cast<float>(wide[i])) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bf16 and fp16 number is widened exactly", "[optim]") {
  for (const HalfFormat format : {HalfFormat::bf16, HalfFormat::fp16}) {
    check_widening<float>(format);
    check_widening<double>(format);
  }
}

/// Floats of all sizes: words at random, all halves, the middles between halves and their
/// neighbours, where rounding decides.
std::vector<float> difficult_floats() {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(splitmix64(i))));
  }
  for (const std::uint16_t bits : all_halves()) {
    for (const HalfFormat format : {HalfFormat::bf16, HalfFormat::fp16}) {
      const float value = expected_wide(format, bits);
      const float next = expected_wide(format, static_cast<std::uint16_t>(bits + 1));
      const float middle = value + (next - value) / 2;
      values.insert(values.end(), {value, middle});
      values.push_back(std::nextafter(middle, value));
      values.push_back(std::nextafter(middle, next));
    }
  }
  for (const float value : {65504.F, 65519.996F, 65520.F, 5.9604645e-8F, 2.9802322e-8F, 1e-40F}) {
    values.insert(values.end(), {value, -value});
  }
  return values;
}

template <class T>
void check_rounding(HalfFormat format, const std::vector<float>& floats) {
  const std::vector<T> values(floats.begin(), floats.end());
  std::vector<std::uint16_t> halves(values.size());
  round_to_nearest(format, values.data(), std::ssize(values), halves.data());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const bool right = std::isnan(floats[i]) ? std::isnan(expected_wide(format, halves[i]))
                                             : halves[i] == expected_half(format, floats[i]);
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("rounding goes to the nearest number, ties to even, and keeps NaN", "[optim]") {
  const std::vector<float> floats = difficult_floats();
  for (const HalfFormat format : {HalfFormat::bf16, HalfFormat::fp16}) {
    check_rounding<float>(format, floats);
    check_rounding<double>(format, floats);
  }
}

TEST_CASE("a loop writes its elements only, whatever their number", "[optim]") {
  std::array<float, 70> values{};
  std::iota(values.begin(), values.end(), 1.F);
  for (std::int64_t count = 0; count < 70; ++count) {
    std::array<std::uint16_t, 71> halves{};
    std::array<float, 71> wide{};
    round_to_nearest(HalfFormat::bf16, values.data(), count, halves.data());
    widen(HalfFormat::bf16, halves.data(), count, wide.data());
    CHECK(std::equal(wide.begin(), wide.begin() + count, values.begin()));
    const auto written = static_cast<std::size_t>(count);
    CHECK((halves[written] == 0 && wide[written] == 0));
  }
}

TEST_CASE("rounding at random gives a neighbour, and the number itself on average", "[optim]") {
  constexpr std::int64_t kDraws = 100'000;
  for (const float value : {1.001F, -3.1415927e-20F, 0.7654321F, 2.F}) {
    std::vector<float> values(kDraws, value);
    std::vector<std::uint16_t> halves(kDraws);
    round_at_random(values.data(), kDraws, {.key = 7, .first = 0, .shift = 16}, halves.data());
    const float unit = std::abs(std::ldexp(1.F, std::ilogb(value) - 7));
    double mean = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(values[i] == expected_wide(HalfFormat::bf16, halves[i]));
      REQUIRE(std::abs(values[i] - value) < unit);
      mean += values[i] / static_cast<double>(kDraws);
    }
    // Six deviations of a mean of draws that lie at most a unit apart.
    CHECK(std::abs(mean - value) < 6 * 0.5 * unit / std::sqrt(static_cast<double>(kDraws)));
  }
}

TEST_CASE("random words belong to the element, the key and the half of the word", "[optim]") {
  const std::vector<double> start(1000, 1.003);
  const auto rounded = [&](std::int64_t cut, std::uint32_t key, std::uint32_t shift) {
    std::vector<double> values = start;
    std::vector<std::uint16_t> halves(1000);
    round_at_random(values.data(), cut, {key, 5, shift}, halves.data());
    round_at_random(values.data() + cut,
                    1000 - cut,
                    {key, static_cast<std::uint32_t>(5 + cut), shift},
                    halves.data() + cut);
    return halves;
  };
  CHECK(rounded(0, 1, 0) == rounded(333, 1, 0));
  CHECK(rounded(0, 1, 0) != rounded(0, 2, 0));
  CHECK(rounded(0, 1, 0) != rounded(0, 1, 16));
}

TEST_CASE("rounding at random keeps infinities, NaN and zeros", "[optim]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::array<float, 5> values = {kInf, -kInf, std::nanf("1"), 0.F, -0.F};
  std::array<std::uint16_t, 5> halves{};
  round_at_random(values.data(), 5, {.key = 0xFFFFFFFF, .first = 9, .shift = 0}, halves.data());
  CHECK(halves[0] == 0x7F80);
  CHECK(halves[1] == 0xFF80);
  CHECK(std::isnan(values[2]));
  CHECK(halves[3] == 0);
  CHECK(halves[4] == 0x8000);
}

}  // namespace
}  // namespace colossal::detail
