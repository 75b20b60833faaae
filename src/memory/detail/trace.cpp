// How is a step compared with the one before? Acquisition by acquisition.
#include "memory/detail/trace.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace colossal::detail {

void StepTrace::begin() {
  active_ = true;
  following_ = !recorded_.empty();
  current_.clear();
}

void StepTrace::end() {
  active_ = false;
  recorded_ = std::exchange(current_, {});
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
  for (const int chunk : chunks) {
    last = next_use(chunk) >= next_use(last) ? chunk : last;
  }
  return last;
}

bool StepTrace::uses(int block, int chunk) const {
  const std::vector<int>& chunks = uses_[static_cast<std::size_t>(block)];
  return std::ranges::find(chunks, chunk) != chunks.end();
}

std::int64_t StepTrace::next_use(int chunk) const {
  const auto length = static_cast<std::int64_t>(recorded_.size());
  const auto done = static_cast<std::int64_t>(current_.size());
  for (std::int64_t ahead = 0; known() && ahead < length; ++ahead) {
    if (uses(recorded_[static_cast<std::size_t>((done + ahead) % length)], chunk)) {
      return ahead + 1;
    }
  }
  return std::numeric_limits<std::int64_t>::max();
}

bool StepTrace::used_soon(int chunk, std::int64_t count) const {
  const std::span<const int> blocks = next(count);
  return std::ranges::any_of(blocks, [&](int block) { return uses(block, chunk); });
}

}  // namespace colossal::detail
