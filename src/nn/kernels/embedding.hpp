// How are rows of a table looked up, and how do their gradients become the gradient of the table?
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// Rows of weight_rh by index. On the CPU the caller has checked that indices are in [0, rows); on
/// a GPU, where nobody can say so in time, another one gives a row of NaN.
[[nodiscard]] at::Tensor embedding_forward(const at::Tensor& weight_rh, const at::Tensor& indices);

/// Gradient [rows,h] of a table whose row indices_m[i] got the gradient grad_mh[i]: equal indices
/// are added in order of i, in fp32 for 16 bits, and rounded once. Contiguous; indices int64 in
/// [0, rows). ATen adds such rows in 16 bits, where the sum of a frequent token's gradients stops
/// growing.
[[nodiscard]] at::Tensor embedding_backward(const at::Tensor& grad_mh,
                                            const at::Tensor& indices_m,
                                            std::int64_t rows);

}  // namespace colossal::kernels
