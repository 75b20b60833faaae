// How is the free part of a device spent? From the peaks of one step.
#include "memory/detail/measured_plan.hpp"

#include "core/error.hpp"
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

MeasuredDecision decide(const MeasuredInput& input) {
  const double share = input.shares.steady_ratio * (1 - input.shares.reserve);
  const auto usable = static_cast<std::int64_t>(share * static_cast<double>(input.device_bytes));
  MeasuredDecision decision;
  std::int64_t margin = usable;
  for (std::size_t i = 0; i < input.non_model.size(); ++i) {
    const std::int64_t budget = usable - input.home_bytes - input.non_model[i];
    const std::int64_t missing = input.needs[i] - budget;
    check(missing <= 0,
          ErrorKind::memory,
          "budget-too-small",
          "acquisition {} of a step needs {} bytes of gathered weights beside {} bytes of "
          "activations, gradients and other tensors, and {} of the device's {} bytes may be used: "
          "{} bytes are missing\n  fix   a smaller train.micro_batch_size, activation_checkpoint: "
          "full, or a smaller parallel.gemini.chunk_size",
          i,
          input.needs[i],
          input.non_model[i],
          usable,
          input.device_bytes,
          missing);
    margin = std::min(margin, -missing);
    decision.budgets.push_back(budget);
  }
  auto free = static_cast<std::int64_t>(input.shares.margin_ratio * static_cast<double>(margin));
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
