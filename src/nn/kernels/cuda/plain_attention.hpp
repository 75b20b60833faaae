// How does a GPU compute attention where no library kernel knows the shape? By products of whole
// matrices; probabilities live for some samples at a time only.
#pragma once

#include "nn/kernels/attention.hpp"

namespace colossal::kernels::cuda {

/// kernels::attention_forward for fp32 and fp64, any head size, documents included. Takes 2 scores
/// (8 bytes in fp32) for each pair of tokens of the samples that fit in 256 MiB, one at least.
[[nodiscard]] AttentionResult plain_attention_forward(const at::Tensor& qkv_bsd,
                                                      const AttentionShape& shape,
                                                      const at::Tensor& starts_bs);
/// Its gradient.
[[nodiscard]] at::Tensor plain_attention_backward(const at::Tensor& grad_bsh,
                                                  const at::Tensor& qkv_bsd,
                                                  const AttentionResult& forward,
                                                  const AttentionShape& shape,
                                                  const at::Tensor& starts_bs);

}  // namespace colossal::kernels::cuda
