// How does glue tell a launch function of which type its elements are? No torch header here: files
// that nvcc compiles include it.
#pragma once

#include <cstdint>

namespace colossal::kernels::cuda {

/// Type of the elements behind an untyped pointer.
enum class ElementType : std::uint8_t { fp32, fp64, bf16, fp16 };

/// Type of sums of such elements.
[[nodiscard]] constexpr ElementType wide_type(ElementType type) noexcept {
  return type == ElementType::fp64 ? ElementType::fp64 : ElementType::fp32;
}

}  // namespace colossal::kernels::cuda
