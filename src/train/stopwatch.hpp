// How long did that take?
#pragma once

#include <chrono>

namespace colossal {

/// Wall-clock seconds since construction, from a clock that never jumps.
class Stopwatch {
 public:
  /// Seconds so far.
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace colossal
