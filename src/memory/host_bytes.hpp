// What does a rank hold in host memory, and how much of each?
#pragma once

#include <cstdint>

namespace colossal {

/// Bytes of a rank in host memory by category: what a device that is not this memory leaves there.
struct HostBytes {
  std::int64_t weights = 0;    ///< homes of weights, among them those that are their own masters
  std::int64_t grads = 0;      ///< summed gradients
  std::int64_t optimizer = 0;  ///< separate masters and states
  std::int64_t inputs = 0;     ///< of blocks that run again in backward
  /// What passes through: states on disk; beside a GPU 16-bit weights and sums of gradients, too.
  std::int64_t buffers = 0;

  /// Of all categories.
  [[nodiscard]] std::int64_t total() const noexcept {
    return weights + grads + optimizer + inputs + buffers;
  }
};

}  // namespace colossal
