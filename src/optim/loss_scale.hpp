// By how much is the loss multiplied so that fp16 gradients neither vanish nor overflow?
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"

#include <optional>

namespace colossal {

/// Scale of the loss under fp16 (optimizers-and-recipes section 4): it grows after a number of
/// clean steps and falls after a number of overflows. Under other precisions it is 1 and never
/// moves.
class LossScaler {
 public:
  /// Goes on from `state`, if given (resume). A scale that the configuration keeps constant is
  /// always its own.
  LossScaler(const TrainConfig& train, const std::optional<LossScale>& state);

  /// Whether the run scales at all: overflow then skips the update and is no error.
  [[nodiscard]] bool active() const noexcept { return state_.has_value(); }
  /// The factor of the loss; gradients of this step are divided by the same number.
  [[nodiscard]] double scale() const noexcept { return state_ ? state_->scale : 1; }
  /// The end of a step. True if the scale would have fallen below its minimum.
  bool update(bool overflow);
  /// What a checkpoint holds; empty unless active.
  [[nodiscard]] const std::optional<LossScale>& state() const noexcept { return state_; }

 private:
  LossScaleConfig config_;
  std::optional<LossScale> state_;
};

}  // namespace colossal
