// How are matrices multiplied? By LibTorch, in fp32 where it has no fast way for 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal::detail {

/// a b; sums in fp32 where a and b have 16 bits.
[[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b);

/// bias + a b, rounded once.
[[nodiscard]] at::Tensor product(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b);

}  // namespace colossal::detail
