// How does the rate rise and fall? Linear warm-up, then a decay shape between the peak and the
// floor.
#include "optim/scheduler.hpp"

#include "config/load.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace colossal {
namespace {

class Constant : public Decay {
 public:
  [[nodiscard]] double factor(double /*p*/) const override { return 1; }
};

class Cosine : public Decay {
 public:
  [[nodiscard]] double factor(double p) const override {
    return (1 + std::cos(std::numbers::pi * p)) / 2;
  }
};

std::int64_t warmup_of(const SchedulerConfig& config, std::int64_t total_steps) {
  const std::int64_t by_ratio =
      std::llround(config.warmup_ratio.value_or(0) * static_cast<double>(total_steps));
  return config.warmup_steps.value_or(by_ratio);
}

}  // namespace

const Registry<Decay>& decays() {
  static const Registry<Decay> table("scheduler.type",
                                     {{"constant", [] { return std::make_unique<Constant>(); }},
                                      {"cosine", [] { return std::make_unique<Cosine>(); }}});
  return table;
}

Scheduler::Scheduler(const SchedulerConfig& config, double lr, std::int64_t total_steps)
    : decay_(decays().make(yaml_word(config.type))),
      lr_(lr),
      start_(config.warmup_start),
      floor_(config.min_lr_ratio),
      warmup_(warmup_of(config, total_steps)),
      decay_steps_(config.decay_steps.value_or(total_steps - warmup_)) {
  check(warmup_ <= total_steps,
        ErrorKind::config,
        "warmup-too-long",
        "scheduler.warmup_steps is {}, the whole run has {} steps; shorten the warm-up or train "
        "longer",
        warmup_,
        total_steps);
}

double Scheduler::lr(std::int64_t k) const {
  if (k < warmup_) {
    return lr_ *
           (start_ + (1 - start_) * static_cast<double>(k + 1) / static_cast<double>(warmup_));
  }
  const std::int64_t after = k - warmup_;
  const double progress =
      after < decay_steps_ ? static_cast<double>(after) / static_cast<double>(decay_steps_) : 1;
  return lr_ * (floor_ + (1 - floor_) * decay_->factor(progress));
}

}  // namespace colossal
