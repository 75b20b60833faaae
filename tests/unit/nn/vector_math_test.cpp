// How far are the vector functions from libm?
#include "nn/kernels/vector_math.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace colossal::kernels {

TEST_CASE("exp is right to 2e-7 over its range and saturates beyond", "[kernels]") {
  double worst = 0;
  for (int i = -87'000; i <= 88'000; ++i) {
    const auto x = static_cast<float>(i * 1e-3 + 1e-4);
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(vector_exp(x)) / expected - 1));
  }
  CHECK(worst < 2e-7);
  CHECK(vector_exp(0.0F) == 1);
  CHECK(vector_exp(1e4F) == vector_exp(88.7F));
  CHECK(std::isfinite(vector_exp(1e4F)));
  CHECK(vector_exp(-1e4F) == vector_exp(-87.3F));
  CHECK(vector_exp(-std::numeric_limits<float>::infinity()) < 2e-38F);
  CHECK(vector_exp(-3.25) == std::exp(-3.25));
}

TEST_CASE("sigmoid and erf are right to fp32 accuracy and saturate", "[kernels]") {
  for (int i = -12'000; i <= 12'000; ++i) {
    const auto x = static_cast<float>(i * 1e-3);
    const double wide = static_cast<double>(x);
    REQUIRE(std::abs(static_cast<double>(vector_erf(x)) - std::erf(wide)) < 5e-7);
    REQUIRE(std::abs(static_cast<double>(vector_sigmoid(x)) - 1 / (1 + std::exp(-wide))) < 2e-7);
  }
  CHECK(vector_erf(50.0F) == 1);
  CHECK(vector_erf(-50.0F) == -1);
  CHECK(vector_sigmoid(200.0F) == 1);
  CHECK(vector_sigmoid(-200.0F) < 2e-38F);
  CHECK(vector_erf(0.5) == std::erf(0.5));
}

TEST_CASE("a NaN of any bits stays one", "[kernels]") {
  for (const std::uint32_t bits :
       {0x7FC00000U, 0xFFC00000U, 0x7FC00001U, 0x7FC001FFU, 0xFFFFFFFFU}) {
    const auto nan = std::bit_cast<float>(bits);
    INFO(bits);
    CHECK(std::isnan(vector_exp(nan)));
    CHECK(std::isnan(vector_sigmoid(nan)));
    CHECK(std::isnan(vector_erf(nan)));
  }
}

}  // namespace colossal::kernels
