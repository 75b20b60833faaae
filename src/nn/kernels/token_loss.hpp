// What does a batch of logits cost? Log-softmax, the sum of the negative log likelihoods, and the
// gradient, in one pass over each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace colossal::kernels {

/// A factor for the gradient of logits of `dtype` where that of the loss is not known in forward; a
/// power of two. For fp16: a probability is at most 1 and often below what fp16 can hold, so it is
/// kept in the upper part of the range.
[[nodiscard]] double loss_grad_scale(at::ScalarType dtype) noexcept;

/// Sum over rows whose label is not kIgnoreLabel of -log softmax(logits_mv[:, :vocabulary])[label];
/// within a row in fp32 at least, over rows in fp64. With `grad_factor`, logits_mv is overwritten
/// by the gradient of that sum times the factor (zero in columns >= vocabulary and in ignored
/// rows). logits contiguous, any floating dtype; labels_m contiguous int64. `smoothing`: the share
/// of each row's loss that is the mean of -log softmax over the vocabulary, as
/// torch.nn.functional.cross_entropy has it. Errors: data "label-range" for a label outside the
/// vocabulary.
[[nodiscard]] double token_loss(at::Tensor& logits_mv,
                                const at::Tensor& labels_m,
                                std::int64_t vocabulary,
                                std::optional<double> grad_factor,
                                double smoothing = 0);

/// token_loss() as a scalar tensor of fp32 at least, where the logits are. On a GPU nobody waits
/// for it, so that a label outside the vocabulary makes loss and gradient NaN in place of the
/// error.
[[nodiscard]] at::Tensor token_loss_tensor(at::Tensor& logits_mv,
                                           const at::Tensor& labels_m,
                                           std::int64_t vocabulary,
                                           std::optional<double> grad_factor,
                                           double smoothing = 0);

/// token_loss_tensor() by operations of ATen around the kernel that knows no smoothing: what a GPU
/// runs. One pass more over the logits, two where a gradient is wanted; the gradient is rounded
/// once more.
[[nodiscard]] at::Tensor composed_token_loss(at::Tensor& logits_mv,
                                             const at::Tensor& labels_m,
                                             std::int64_t vocabulary,
                                             std::optional<double> grad_factor,
                                             double smoothing);

/// What token_loss() left in place of the logits, times the gradient `loss_grad` of the loss
/// (scalar, its dtype) over the `grad_factor` that it was given: the gradient of the logits.
/// Nothing is done where both are equal.
void scale_loss_grad(at::Tensor& logits_grad, const at::Tensor& loss_grad, double grad_factor);

}  // namespace colossal::kernels
