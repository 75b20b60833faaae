// How is the free part of a device spent? From the peaks of one step.
#include "memory/detail/measured_plan.hpp"

#include "core/error.hpp"
#include "memory/device_memory.hpp"

#include <algorithm>
#include <numeric>
#include <span>
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

namespace {

/// Those of `chunks`, in order, that have bytes to move and fit into what is free beside the ones
/// before; their bytes are added to `moved`.
std::vector<int> fitting(std::span<const int> chunks,
                         std::span<const std::int64_t> bytes_of_chunk,
                         std::int64_t free,
                         std::int64_t& moved) {
  std::vector<int> result;
  for (const int chunk : chunks) {
    const std::int64_t bytes = bytes_of_chunk[static_cast<std::size_t>(chunk)];
    if (bytes > 0 && bytes <= free) {
      result.push_back(chunk);
      free -= bytes;
      moved += bytes;
    }
  }
  return result;
}

}  // namespace

std::int64_t usable_bytes(const MeasuredInput& input) {
  return static_cast<std::int64_t>(usable_share(input.shares) *
                                   static_cast<double>(input.device_bytes));
}

MeasuredDecision decide(const MeasuredInput& input) {
  check(input.needs.size() == input.non_model.size(),
        ErrorKind::internal,
        "measured-step",
        "a step of {} acquisitions cannot be decided from the peaks of {}",
        input.needs.size(),
        input.non_model.size());
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
  std::vector<int> chunks(input.optimizer_bytes.size());
  std::iota(chunks.rbegin(), chunks.rend(), 0);
  const auto share =
      static_cast<std::int64_t>(input.shares.margin_ratio * static_cast<double>(decision.slack));
  std::int64_t moved = 0;
  decision.to_device = fitting(chunks, input.optimizer_bytes, share, moved);
  decision.homes_to_device =
      fitting(decision.to_device, input.weight_bytes, decision.slack - moved, moved);
  for (std::int64_t& budget : decision.budgets) {
    budget -= moved;
  }
  return decision;
}

void follow(const MeasuredDecision& decision,
            bool masters_are_weights,
            const Mesh& mesh,
            ChunkPlan& plan) {
  for (const int chunk : decision.to_device) {
    plan.chunks[static_cast<std::size_t>(chunk)].optim_home = Tier::device;
  }
  for (const int chunk : masters_are_weights ? decision.to_device : decision.homes_to_device) {
    ChunkSpec& spec = plan.chunks[static_cast<std::size_t>(chunk)];
    spec.param_home = Tier::device;
    spec.resident = mesh.size(spec.shard_axes) == 1;
  }
}

}  // namespace colossal::detail
