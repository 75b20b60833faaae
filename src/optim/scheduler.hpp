// What is the learning rate of update k? A pure function of (config, total steps, k): nothing is
// stored.
#pragma once

#include "config/config.hpp"
#include "optim/curves.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace colossal {

/// Linear warm-up to the peak, then the curve of scheduler.type.
class Scheduler {
 public:
  /// Errors: config "warmup-too-long" if the warm-up exceeds `total_steps`, and those of curves().
  Scheduler(const SchedulerConfig& config, double lr, std::int64_t total_steps);
  /// Rate of update k = 0, 1, ...; defined beyond the end of the run too.
  [[nodiscard]] double lr(std::int64_t k) const;
  /// Momentum or first beta that update k uses instead of the optimizer's own; only one_cycle has
  /// one.
  [[nodiscard]] std::optional<double> momentum(std::int64_t k) const { return curve_->momentum(k); }
  [[nodiscard]] std::int64_t warmup_steps() const noexcept { return warmup_; }
  /// One line for people: "10 steps of warm-up, then cosine from step 10 to 10% of lr at step 100".
  [[nodiscard]] std::string in_words() const;

 private:
  double lr_;
  double start_;
  std::int64_t warmup_;
  std::unique_ptr<Curve> curve_;
};

}  // namespace colossal
