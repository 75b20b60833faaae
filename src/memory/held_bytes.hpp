// What does a store hold on the device? In the categories of its plan.
#pragma once

#include <cstdint>

namespace colossal {

/// Bytes of one rank's device at one moment, named as those of ChunkBytes, which expects them.
struct HeldBytes {
  std::int64_t weights = 0;  ///< that stay, and masters that are weights
  std::int64_t grads = 0;    ///< this rank's sums, and whole ones that stay or are lent for a step
  std::int64_t optimizer = 0;  ///< separate masters and states
  std::int64_t borrowed = 0;   ///< gathered weights, gradients of a micro-batch, what is reduced
  [[nodiscard]] std::int64_t total() const noexcept {
    return weights + grads + optimizer + borrowed;
  }
};

}  // namespace colossal
