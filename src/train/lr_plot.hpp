// What does a schedule look like? A picture of the learning rate over the run.
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <string>

namespace colossal {

/// SVG of the learning rate of every update of a run of `total_steps`: one line for the peak rate
/// and one for each other lr_scale of optimizer.groups, axes from zero, the schedule in words as
/// the caption. Errors: config, as Scheduler.
[[nodiscard]] std::string lr_plot(const Config& config, std::int64_t total_steps);

}  // namespace colossal
