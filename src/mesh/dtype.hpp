// Which dtype holds what must not be rounded to 16 bits?
#pragma once

#include <c10/core/ScalarType.h>

namespace colossal {

/// The wider of fp32 and `dtype`: of master weights, optimizer mathematics, statistics and sums.
[[nodiscard]] constexpr at::ScalarType wide_dtype(at::ScalarType dtype) noexcept {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace colossal
