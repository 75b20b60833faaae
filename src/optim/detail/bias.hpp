// By how much are moments too small after few steps?
#pragma once

#include <cmath>
#include <cstdint>

namespace colossal::detail {

/// 1 - beta^t without cancellation for beta near 1.
[[nodiscard]] inline double bias_factor(double beta, std::int64_t t) {
  return -std::expm1(static_cast<double>(t) * std::log(beta));
}

}  // namespace colossal::detail
