// How is the free part of a device spent? From the peaks of one step.
#include "memory/detail/measured_plan.hpp"

#include "memory/device_memory.hpp"

#include <algorithm>
#include <utility>

namespace colossal::detail {

void NonModelTrace::begin() {
  current_ = 0;
  peaks_.clear();
  device_memory().reset_peak();
}

void NonModelTrace::observe(std::int64_t store_bytes) {
  current_ = std::max(current_, device_memory().use().peak - store_bytes);
  device_memory().reset_peak();
}

void NonModelTrace::next() {
  if (!peaks_.empty()) {
    peaks_.back() = current_;
    current_ = 0;
  }
  peaks_.push_back(0);
}

std::vector<std::int64_t> NonModelTrace::finish() {
  if (!peaks_.empty()) {
    peaks_.back() = current_;
  }
  return std::exchange(peaks_, {});
}

std::int64_t usable_bytes(const MeasuredInput& input) {
  return static_cast<std::int64_t>(usable_share(input.shares) *
                                   static_cast<double>(input.device_bytes));
}

MeasuredDecision decide(const MeasuredInput& input) {
  const std::int64_t usable = usable_bytes(input);
  MeasuredDecision decision;
  decision.slack = usable;
  for (std::size_t i = 0; i < input.non_model.size(); ++i) {
    const std::int64_t budget = usable - input.home_bytes - input.non_model[i];
    if (const std::int64_t free = budget - input.needs[i]; free < decision.slack) {
      decision.slack = free;
      decision.tightest = i;
    }
    decision.budgets.push_back(budget);
  }
  if (decision.slack < 0) {
    decision.budgets.clear();
    return decision;
  }
  auto free =
      static_cast<std::int64_t>(input.shares.margin_ratio * static_cast<double>(decision.slack));
  std::int64_t moved = 0;
  for (int chunk = static_cast<int>(input.optimizer_bytes.size()) - 1; chunk >= 0; --chunk) {
    const std::int64_t bytes = input.optimizer_bytes[static_cast<std::size_t>(chunk)];
    if (bytes > 0 && bytes <= free) {
      decision.to_device.push_back(chunk);
      free -= bytes;
      moved += bytes;
    }
  }
  for (std::int64_t& budget : decision.budgets) {
    budget -= moved;
  }
  return decision;
}

}  // namespace colossal::detail
