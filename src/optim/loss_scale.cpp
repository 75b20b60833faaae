// When does the loss scale move?
#include "optim/loss_scale.hpp"

#include <algorithm>

namespace colossal {

LossScaler::LossScaler(const TrainConfig& train, const std::optional<LossScale>& state)
    : config_(train.loss_scale.value_or(LossScaleConfig{})) {
  if (train.precision != Precision::fp16) {
    return;
  }
  state_ = state.value_or(LossScale{config_.init, 0, config_.hysteresis});
  if (config_.growth == 1 && config_.backoff == 1) {
    state_->scale = config_.init;
  }
}

bool LossScaler::update(bool overflow) {
  if (!state_) {
    return false;
  }
  if (!overflow) {
    if (++state_->growth == config_.growth_interval) {
      state_->growth = 0;
      state_->hysteresis = config_.hysteresis;
      state_->scale = std::min(state_->scale * config_.growth, config_.max);
    }
    return false;
  }
  state_->growth = 0;
  // a good step does not refill it: overflows now and then are a scale that is too high
  if (--state_->hysteresis > 0) {
    return false;
  }
  const double lower = state_->scale * config_.backoff;
  state_->scale = std::max(lower, config_.min);
  return lower < config_.min;
}

}  // namespace colossal
