// Which steps of equal size follow each other? Whole stretches are counted, never single steps.
#include "config/batch_sizes.hpp"

#include <algorithm>
#include <limits>

namespace colossal {
namespace {

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return (a - 1) / b + 1;
}

BatchSizes::BatchSizes(std::int64_t full, const std::optional<BatchRampConfig>& ramp)
    : full_(full), ramp_(ramp.value_or(BatchRampConfig{})) {
  if (ramp && ramp->increment > 0 && ramp->samples > 0 && ramp->start > 0) {
    parts_ = std::max<std::int64_t>(0, (full - ramp->start) / ramp->increment);
  }
}

BatchSizes::Stretch BatchSizes::stretch_at(std::int64_t consumed) const noexcept {
  if (parts_ == 0 || consumed >= ramp_.samples) {
    return {full_, kEndless};
  }
  // Both products are at most 10^18: sizes and samples are at most 10^9.
  const std::int64_t part = consumed * parts_ / ramp_.samples;
  const std::int64_t end = ceil_div((part + 1) * ramp_.samples, parts_);
  const std::int64_t batch = ramp_.start + part * ramp_.increment;
  return {batch, ceil_div(end - consumed, batch)};
}

std::int64_t BatchSizes::at(std::int64_t consumed) const noexcept {
  return stretch_at(consumed).batch;
}

std::int64_t BatchSizes::steps_to(std::int64_t samples) const noexcept {
  std::int64_t steps = 0;
  std::int64_t consumed = 0;
  while (consumed < samples) {
    const Stretch stretch = stretch_at(consumed);
    const std::int64_t taken = std::min(stretch.steps, ceil_div(samples - consumed, stretch.batch));
    steps += taken;
    consumed += taken * stretch.batch;
  }
  return steps;
}

std::int64_t BatchSizes::samples_after(std::int64_t steps) const noexcept {
  std::int64_t consumed = 0;
  while (steps > 0) {
    const Stretch stretch = stretch_at(consumed);
    const std::int64_t taken = std::min(stretch.steps, steps);
    steps -= taken;
    consumed += taken * stretch.batch;
  }
  return consumed;
}

std::int64_t BatchSizes::ramp_steps() const noexcept {
  return parts_ == 0 ? 0 : steps_to(ramp_.samples);
}

}  // namespace colossal
