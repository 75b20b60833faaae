// What does a batch of logits cost? Log-softmax, the sum of the negative log likelihoods, and the
// gradient, in one pass over each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// Sum over rows whose label is not kIgnoreLabel of -log softmax(logits_mv[:, :vocabulary])[label];
/// accumulated in fp64. With `want_grad`, logits_mv is overwritten by the gradient of that sum
/// (zero in columns >= vocabulary and in ignored rows). logits contiguous, fp32 or fp64; labels_m
/// contiguous int64. Errors: data "label-range" for a label outside the vocabulary.
[[nodiscard]] double token_loss(at::Tensor& logits_mv,
                                const at::Tensor& labels_m,
                                std::int64_t vocabulary,
                                bool want_grad);

}  // namespace colossal::kernels
