// What is the learning rate of update k? A pure function of (config, total steps, k): nothing is
// stored.
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"

#include <cstdint>
#include <memory>

namespace colossal {

/// Shape of the rate after warm-up.
class Decay {
 public:
  virtual ~Decay() = default;
  /// Factor in [0, 1] at progress p in [0, 1] through the decay, before the floor is applied.
  [[nodiscard]] virtual double factor(double p) const = 0;
};

/// Table by scheduler.type: constant, cosine.
[[nodiscard]] const Registry<Decay>& decays();

/// Linear warm-up to the peak, then the decay shape down to the floor.
class Scheduler {
 public:
  /// Errors: config "warmup-too-long" if the warm-up exceeds `total_steps`.
  Scheduler(const SchedulerConfig& config, double lr, std::int64_t total_steps);
  /// Rate of update k = 0, 1, ...; beyond the end it stays at the floor.
  [[nodiscard]] double lr(std::int64_t k) const;
  [[nodiscard]] std::int64_t warmup_steps() const noexcept { return warmup_; }

 private:
  std::unique_ptr<Decay> decay_;
  double lr_;
  double start_;
  double floor_;
  std::int64_t warmup_;
  std::int64_t decay_steps_;
};

}  // namespace colossal
