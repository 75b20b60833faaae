// Which values of the scheduler section follow from its type and from the length of the run?
#pragma once

#include "config/config.hpp"

#include <cstdint>

namespace colossal {

/// Peak rate of the run: optimizer.lr scaled by lr_scaling with the global batch size; optimizer.lr
/// while that size is unknown.
[[nodiscard]] double effective_lr(const Config& config);

/// Warm-up of a run of `total_steps`: warmup_steps, or warmup_ratio of the run to the nearest step.
[[nodiscard]] std::int64_t warmup_steps(const SchedulerConfig& scheduler, std::int64_t total_steps);

/// stable_ratio as given, else that of the type: 0.72 for flat_cosine, 0.8 for wsd.
[[nodiscard]] double stable_ratio(const SchedulerConfig& scheduler);

/// Update (not always a whole one) at which the decay of a wsd starts: stable_ratio of the run, or
/// of warm-up and decay_steps together where these are given.
[[nodiscard]] double wsd_decay_start(const SchedulerConfig& scheduler, std::int64_t total_steps);

}  // namespace colossal
