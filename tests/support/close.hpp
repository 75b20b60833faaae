// When are two tensors equal enough? The one measure of every equivalence claim (architecture
// section 9).
#pragma once

#include "support/catch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace colossal::test {

/// max|a-b| / max(max|a|, floor): the scaled distance of two tensors of one shape; NaN counts as
/// infinitely far.
inline double scaled_distance(const at::Tensor& a, const at::Tensor& b, double floor = 1e-6) {
  if (a.sizes() != b.sizes()) {
    return INFINITY;
  }
  if (a.numel() == 0) {
    return 0;
  }
  const at::Tensor wide_a = a.detach().to(at::kCPU, at::kDouble);
  const at::Tensor wide_b = b.detach().to(at::kCPU, at::kDouble);
  const double difference = at::max(at::abs(at::sub(wide_a, wide_b))).item<double>();
  const double size = std::max(at::max(at::abs(wide_a)).item<double>(), floor);
  return std::isnan(difference) ? INFINITY : difference / size;
}

/// Fails the test unless scaled_distance(a, b) <= tolerance, naming what was compared.
inline void require_close(const at::Tensor& a,
                          const at::Tensor& b,
                          double tolerance,
                          const std::string& what) {
  const double distance = scaled_distance(a, b);
  INFO(what << ": scaled distance " << distance << " > " << tolerance);
  REQUIRE(distance <= tolerance);
}

/// Fails the test unless |a-b| <= tolerance * |a|.
inline void require_relative(double a, double b, double tolerance, const std::string& what) {
  INFO(what << ": " << a << " vs " << b);
  REQUIRE(std::abs(a - b) <= tolerance * std::abs(a));
}

}  // namespace colossal::test
