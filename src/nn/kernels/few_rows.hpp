// How is a linear layer computed for the one next token of a few sequences? Row by row against each
// weight row, so that a sequence's numbers do not depend on its neighbours.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// Rows that linear_few_rows is meant for; beyond, a general matrix product is faster.
inline constexpr std::int64_t kFewRows = 16;

/// x_mi W^T + b; bias_o may be undefined. All contiguous, fp32 or fp64. A row's result does not
/// depend, bit for bit, on the number of rows or on the others (a general product's does: it blocks
/// by its size). Gradients: none.
[[nodiscard]] at::Tensor linear_few_rows(const at::Tensor& x_mi,
                                         const at::Tensor& weight_oi,
                                         const at::Tensor& bias_o);

}  // namespace colossal::kernels
