// How do the gradients of looked-up rows become the gradient of a table?
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// Gradient [rows,h] of a table whose row indices_m[i] got the gradient grad_mh[i]: equal indices
/// are added in order of i, in fp32 for 16 bits, and rounded once. Contiguous; indices int64 in
/// [0, rows). ATen adds such rows in 16 bits, where the sum of a frequent token's gradients stops
/// growing.
[[nodiscard]] at::Tensor embedding_backward(const at::Tensor& grad_mh,
                                            const at::Tensor& indices_m,
                                            std::int64_t rows);

}  // namespace colossal::kernels
