// How are bytes counted by several threads at once? Relaxed atomics: no gauge guards other data.
#include "memory/gauge.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace colossal {
namespace {

void raise(std::atomic<std::int64_t>& peak, std::int64_t bytes) noexcept {
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (bytes > seen && !peak.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace

bool MemoryGauge::try_add(std::int64_t bytes) noexcept {
  // A refused request is never visible: it must not make another thread's fail.
  std::int64_t held = current_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_.load(std::memory_order_relaxed) - held) {
      return false;
    }
  } while (!current_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  raise(peak_, held + bytes);
  return true;
}

MemoryUse MemoryGauge::use() const noexcept {
  const std::int64_t peak = peak_.load(std::memory_order_relaxed);
  return {.current = current_.load(std::memory_order_relaxed),
          .peak = peak,
          .highest = std::max(peak, highest_.load(std::memory_order_relaxed))};
}

void MemoryGauge::reset_peak() noexcept {
  raise(highest_, peak_.exchange(current_.load(std::memory_order_relaxed)));
}

void MemoryGauge::set_limit(std::optional<std::int64_t> bytes) noexcept {
  limit_.store(bytes.value_or(kNoLimit), std::memory_order_relaxed);
}

std::optional<std::int64_t> MemoryGauge::limit() const noexcept {
  const std::int64_t bytes = limit_.load(std::memory_order_relaxed);
  return bytes == kNoLimit ? std::nullopt : std::optional(bytes);
}

MemoryGauge& gauge(MemoryKind kind) noexcept {
  static constinit std::array<MemoryGauge, 5> gauges;
  return gauges[static_cast<std::size_t>(kind)];
}

}  // namespace colossal
