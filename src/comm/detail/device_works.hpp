// Which collectives does a GPU still work on? Entered by the main thread, which does not wait for
// them, and looked after by the watchdog.
#pragma once

#include "comm/detail/backend.hpp"
#include "comm/detail/progress.hpp"

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace colossal::detail {

/// A collective that a GPU works on.
struct DeviceWork {
  Collective collective;
  std::vector<int> ranks;  ///< global, of its group
  WorkProbe probe;
  std::chrono::steady_clock::time_point entered;
};

/// One that needs an explanation: it has failed, or takes too long.
struct TroubledWork {
  DeviceWork work;
  bool broken = false;
};

/// Collectives of all groups in order of entry. Thread-safe.
class DeviceWorks {
 public:
  /// Forgets what has ended in the meantime, so that no tensor is held longer than needed.
  void add(DeviceWork work);
  /// The first that is broken, or has been running for longer than `timeout`.
  [[nodiscard]] std::optional<TroubledWork> trouble(std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::deque<DeviceWork> works_;
};

}  // namespace colossal::detail
