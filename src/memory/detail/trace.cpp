// How is a step compared with the one before? Acquisition by acquisition.
#include "memory/detail/trace.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace colossal::detail {

StepTrace::StepTrace(std::vector<std::vector<int>> uses) : uses_(std::move(uses)) {
  int last = -1;
  for (const std::vector<int>& chunks : uses_) {
    last = std::accumulate(
        chunks.begin(), chunks.end(), last, [](int a, int b) { return std::max(a, b); });
  }
  places_.resize(static_cast<std::size_t>(last + 1));
}

void StepTrace::begin() {
  active_ = true;
  following_ = !recorded_.empty();
  current_.clear();
}

void StepTrace::end() {
  active_ = false;
  steady_ = recorded_ == current_;
  if (steady_) {
    return;
  }
  recorded_ = std::exchange(current_, {});
  for (std::vector<std::int64_t>& places : places_) {
    places.clear();
  }
  for (std::size_t place = 0; place < recorded_.size(); ++place) {
    for (const int chunk : uses_[index(recorded_[place])]) {
      places_[index(chunk)].push_back(static_cast<std::int64_t>(place));
    }
  }
}

void StepTrace::acquire(int block) {
  if (!active_) {
    return;
  }
  const std::size_t step = current_.size();
  following_ = following_ && step < recorded_.size() && recorded_[step] == block;
  current_.push_back(block);
}

std::span<const int> StepTrace::next(std::int64_t count) const {
  if (!known()) {
    return {};
  }
  const std::span<const int> rest = std::span(recorded_).subspan(current_.size());
  return rest.first(std::min(rest.size(), static_cast<std::size_t>(count)));
}

std::vector<int> StepTrace::chunks_ahead(std::int64_t count) const {
  std::vector<int> chunks;
  for (const int block : next(count)) {
    const std::vector<int>& used = uses_[static_cast<std::size_t>(block)];
    chunks.insert(chunks.end(), used.begin(), used.end());
  }
  return chunks;
}

int StepTrace::needed_last(std::span<const int> chunks) const {
  int last = chunks.front();
  std::int64_t farthest = next_use(last);
  for (const int chunk : chunks.subspan(1)) {
    const std::int64_t use = next_use(chunk);
    last = use >= farthest ? chunk : last;
    farthest = std::max(use, farthest);
  }
  return last;
}

std::int64_t StepTrace::next_place(int chunk) const {
  const std::vector<std::int64_t>& places = places_[index(chunk)];
  const auto next = std::ranges::lower_bound(places, std::ssize(current_));
  return next == places.end() ? std::ssize(recorded_) : *next;
}

std::int64_t StepTrace::next_use(int chunk) const {
  const std::vector<std::int64_t>& places = places_[index(chunk)];
  if (!known() || places.empty()) {
    return std::numeric_limits<std::int64_t>::max();
  }
  const std::int64_t place = next_place(chunk);
  const bool this_step = place < std::ssize(recorded_);
  return (this_step ? place : place + places.front()) - std::ssize(current_) + 1;
}

bool StepTrace::used_soon(int chunk, std::int64_t count) const {
  return known() &&
         next_place(chunk) < std::min(std::ssize(recorded_), std::ssize(current_) + count);
}

}  // namespace colossal::detail
