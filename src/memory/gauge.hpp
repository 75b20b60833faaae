// How many bytes of each kind of memory does this process hold, and how many may it?
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

namespace colossal {

/// What a gauge counts.
enum class MemoryKind : std::uint8_t {
  device,    ///< tensors of the compute device
  host,      ///< host_empty(): homes of weights and states, and staging beside the device
  nvme,      ///< files of optimizer states
  gathered,  ///< the part of device that holds weights gathered from other ranks or tiers
  pinned     ///< the part of host that is page-locked for copies to and from a GPU
};

/// A gauge at one moment, in bytes.
struct MemoryUse {
  std::int64_t current = 0;
  std::int64_t peak = 0;     ///< highest since reset_peak()
  std::int64_t highest = 0;  ///< highest of the whole process
};

/// Counts bytes of one kind. All functions are thread-safe; none but set_limit() changes what may
/// be held.
class MemoryGauge {
 public:
  /// Counts `bytes` more unless that exceeds the limit: false then, and nothing is counted.
  [[nodiscard]] bool try_add(std::int64_t bytes) noexcept;
  /// Counts `bytes` fewer.
  void remove(std::int64_t bytes) noexcept { current_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// What is held now, and was at most.
  [[nodiscard]] MemoryUse use() const noexcept;
  /// Starts a new peak at what is held now.
  void reset_peak() noexcept;
  /// Unset: no limit. What is held already stays.
  void set_limit(std::optional<std::int64_t> bytes) noexcept;
  [[nodiscard]] std::optional<std::int64_t> limit() const noexcept;

 private:
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  std::atomic<std::int64_t> current_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> highest_{0};
  std::atomic<std::int64_t> limit_{kNoLimit};
};

/// The gauge of one kind. LibTorch has one allocator a process, so there is one set of gauges, too.
[[nodiscard]] MemoryGauge& gauge(MemoryKind kind) noexcept;

}  // namespace colossal
