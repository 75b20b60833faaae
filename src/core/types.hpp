// Which small types does every folder share?
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace colossal {

/// Sizes of a tensor's dims, outermost first.
using Shape = std::vector<std::int64_t>;

/// Number of elements of a tensor of this shape; 1 for a scalar (empty shape).
[[nodiscard]] inline std::int64_t numel(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace colossal
