// Attention on a GPU; contracts as in nn/kernels/attention.hpp.
#pragma once

#include "nn/kernels/attention.hpp"

namespace colossal::kernels::cuda {

/// kernels::attention_forward on a GPU: cuDNN's or FlashAttention's kernel for 16 bits where they
/// know the shape, else products in fp32 (fp64) around a softmax of our own.
[[nodiscard]] AttentionResult attention_forward(const at::Tensor& qkv_bsd,
                                                const AttentionShape& shape,
                                                const at::Tensor& starts_bs);
/// kernels::attention_backward on a GPU, by the kernel that forward took.
[[nodiscard]] at::Tensor attention_backward(const at::Tensor& grad_bsh,
                                            const at::Tensor& qkv_bsd,
                                            const AttentionResult& forward,
                                            const AttentionShape& shape,
                                            const at::Tensor& starts_bs);

}  // namespace colossal::kernels::cuda
