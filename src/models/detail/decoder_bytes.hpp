// How many bytes does a decoder block hold, and when? Moment by moment of its forward and backward.
#pragma once

#include "config/config.hpp"
#include "nn/block.hpp"
#include "nn/layers.hpp"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace colossal::detail {

/// Bytes of one micro-batch in a decoder block of a GPT, as BlockCost counts them.
class DecoderBytes {
 public:
  /// `model` must outlive it; `dtype`: of the activations, which are on `device`.
  DecoderBytes(const ModelConfig& model,
               const Recompute& again,
               const BatchShape& shape,
               at::ScalarType dtype,
               at::Device device);

  /// For BlockCost::activation_bytes.
  [[nodiscard]] std::int64_t kept() const;
  /// For BlockCost::forward_bytes.
  [[nodiscard]] std::int64_t forward() const;
  /// For BlockCost::backward_bytes.
  [[nodiscard]] std::int64_t backward() const;

 private:
  [[nodiscard]] std::int64_t elements(std::int64_t per_token) const;
  [[nodiscard]] std::int64_t statistics(std::int64_t per_token) const;
  [[nodiscard]] std::int64_t feed_forward_kept() const;
  [[nodiscard]] std::int64_t all_results() const;
  [[nodiscard]] std::int64_t widened(std::int64_t per_token) const;
  [[nodiscard]] bool math() const;
  [[nodiscard]] std::int64_t scores() const;
  [[nodiscard]] std::int64_t kept_factors() const;
  [[nodiscard]] std::int64_t beyond_qkv() const;
  [[nodiscard]] std::int64_t kept_scores() const;
  [[nodiscard]] std::int64_t in_forward(std::int64_t in, std::int64_t out, bool bias) const;
  [[nodiscard]] std::int64_t in_backward(std::int64_t in, std::int64_t out) const;
  [[nodiscard]] std::int64_t feed_forward_backward() const;
  [[nodiscard]] std::int64_t plain_core_backward() const;
  [[nodiscard]] std::int64_t attention_backward() const;

  const ModelConfig& model_;
  Recompute again_;
  at::ScalarType dtype_;
  at::Device device_;
  std::int64_t item_;    ///< bytes of an activation
  std::int64_t wide_;    ///< bytes of a statistic
  std::int64_t tokens_;  ///< of the micro-batch
  std::int64_t num_scores_;
  std::int64_t hidden_;
  std::int64_t qkv_;
  std::int64_t inner_;     ///< width of the feed-forward
  std::int64_t products_;  ///< those of its first half, in elements of a token
};

}  // namespace colossal::detail
