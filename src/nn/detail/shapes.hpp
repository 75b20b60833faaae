// How do autograd nodes see their arguments?
#pragma once

#include "core/types.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace colossal::detail {

/// x [..., n] as a matrix of rows [m, n].
[[nodiscard]] inline at::Tensor rows_of(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// The shape of x with another last dim.
[[nodiscard]] inline Shape with_last(const at::Tensor& x, std::int64_t last) {
  Shape shape = x.sizes().vec();
  shape.back() = last;
  return shape;
}

/// Nodes take an absent tensor as an empty optional.
[[nodiscard]] inline std::optional<at::Tensor> optional_of(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

}  // namespace colossal::detail
