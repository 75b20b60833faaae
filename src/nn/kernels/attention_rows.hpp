// What is behind kernels::attention for fp32 on the CPU? Our own vector kernel: blocks of query
// rows against the keys they may see.
#pragma once

#include "nn/kernels/attention.hpp"

namespace colossal::kernels {

/// attention_forward for fp32 and a head_dim that is a multiple of 16.
[[nodiscard]] AttentionResult attention_rows_forward(const at::Tensor& qkv_bsd,
                                                     const AttentionShape& shape,
                                                     const at::Tensor& starts_bs);

/// attention_backward for the same.
[[nodiscard]] at::Tensor attention_rows_backward(const at::Tensor& grad_bsh,
                                                 const at::Tensor& qkv_bsd,
                                                 const AttentionResult& forward,
                                                 const AttentionShape& shape,
                                                 const at::Tensor& starts_bs);

}  // namespace colossal::kernels
