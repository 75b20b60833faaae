// How does the rate rise, and who takes over after the warm-up?
#include "optim/scheduler.hpp"

#include "config/load.hpp"
#include "config/schedule.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

namespace colossal {
namespace {

/// Steps of warm-up. Errors: config "warmup-too-long".
std::int64_t warmup_of(const SchedulerConfig& config, std::int64_t total_steps) {
  const std::int64_t warmup = warmup_steps(config, total_steps);
  check(warmup <= total_steps,
        ErrorKind::config,
        "warmup-too-long",
        "scheduler.warmup_steps is {}, the whole run has {} steps; shorten the warm-up or train "
        "longer",
        warmup,
        total_steps);
  return warmup;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, double lr, std::int64_t total_steps)
    : lr_(lr),
      start_(config.warmup_start),
      warmup_(warmup_of(config, total_steps)),
      curve_(curves().make(yaml_word(config.type),
                           {.config = config, .warmup = warmup_, .total = total_steps})) {}

double Scheduler::lr(std::int64_t k) const {
  if (k < warmup_) {
    return lr_ *
           (start_ + (1 - start_) * static_cast<double>(k + 1) / static_cast<double>(warmup_));
  }
  return lr_ * curve_->rate(k);
}

std::string Scheduler::in_words() const {
  if (warmup_ == 0) {
    return curve_->in_words();
  }
  return fmt::format("{} of warm-up{}, then {}",
                     counted(warmup_, "step"),
                     start_ == 0 ? "" : fmt::format(" from {:.4g}% of lr", 100 * start_),
                     curve_->in_words());
}

}  // namespace colossal
