// How much memory does the compute device have, who asked for too much, and when?
#pragma once

#include "core/trace.hpp"
#include "memory/gauge.hpp"

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace colossal {

/// What the caching allocator of a GPU has taken from the card for all tensors together.
struct CachedBytes {
  std::int64_t reserved = 0;      ///< in all
  std::int64_t pieces = 0;        ///< of these, free: parts of blocks that are in use otherwise
  std::int64_t largest_free = 0;  ///< the largest block that is free
};

/// A request for memory that the device could not grant.
struct Refusal {
  std::int64_t requested = 0;         ///< bytes
  std::int64_t allocated = 0;         ///< bytes held by others then
  std::int64_t peak = 0;              ///< most bytes ever held
  std::optional<std::int64_t> limit;  ///< unset: the machine itself had no more
  std::optional<trace::Place> place;  ///< what the asking thread did; empty before the first step
  std::optional<CachedBytes> cached = {};  ///< unset: nothing is cached (a CPU)
};

/// Memory of the device that holds this process's tensors: of the CPU through an allocator of our
/// own, of a GPU through the statistics of LibTorch's.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Bytes of live tensors: what they asked for, without the allocator's rounding.
  [[nodiscard]] virtual MemoryUse use() const = 0;
  /// Starts a new MemoryUse::peak at what is held now.
  virtual void reset_peak() = 0;
  /// Bytes that tensors may take; unset: what the device has.
  virtual void set_limit(std::optional<std::int64_t> bytes) = 0;
  [[nodiscard]] virtual std::optional<std::int64_t> limit() const = 0;
  /// The last request that was refused in this process; empty if none was. A refusal is thrown as
  /// c10::OutOfMemoryError, from which LibTorch recovers: everything allocated so far stays usable.
  [[nodiscard]] virtual std::optional<Refusal> last_refusal() const = 0;
};

/// From now on device_memory() is the memory of `device`. Call it before the first tensor on it.
void count_device_memory(at::Device device);

/// The device of this process, by default the CPU: its first call puts a counting allocator under
/// all tensors of the CPU allocated from then on. Call it before the first tensor: older ones are
/// not counted. What host_empty() gives is not device memory.
[[nodiscard]] DeviceMemory& device_memory();

}  // namespace colossal
