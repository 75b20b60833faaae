// Which numbers are at the edge of a type, and how are whole tensors of them compared?
#pragma once

#include "support/catch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <limits>
#include <vector>

namespace colossal::test {

inline const std::vector<at::ScalarType> kAll = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};
inline const double kInfinity = std::numeric_limits<double>::infinity();
inline const double kNan = std::nan("");

/// Longer than a vector register and no multiple of one, so that both loops of a kernel see it.
inline constexpr std::int64_t kWide = 37;

inline at::Tensor row_of(double value, at::ScalarType dtype) {
  return at::full({1, kWide}, value, at::dtype(dtype));
}

/// Every element is this number, which may be NaN.
inline void require_all(const at::Tensor& x, double value) {
  const at::Tensor wide = x.to(at::kDouble).contiguous().view(-1);
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const double found = wide[i].item<double>();
    INFO("element " << i << " of " << wide.numel());
    if (std::isnan(value)) {
      REQUIRE(std::isnan(found));
    } else {
      REQUIRE(found == value);
    }
  }
}

/// Nothing that could be seen: exponential functions of fp32 end at 1e-38, not at 0.
inline void require_vanishing(const at::Tensor& x) {
  REQUIRE(x.abs().max().item<double>() <= 1e-30);
}

inline double largest(at::ScalarType dtype) {
  return dtype == at::kHalf       ? 65504
         : dtype == at::kBFloat16 ? 0x1.FEp127
         : dtype == at::kFloat    ? std::numeric_limits<float>::max()
                                  : std::numeric_limits<double>::max();
}

inline double smallest(at::ScalarType dtype) {
  return dtype == at::kHalf       ? 0x1p-24
         : dtype == at::kBFloat16 ? 0x1p-133
         : dtype == at::kFloat    ? 0x1p-149
                                  : 0x1p-1074;
}

}  // namespace colossal::test
