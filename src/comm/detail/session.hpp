// What do all groups of one World share?
#pragma once

#include "comm/detail/device_works.hpp"
#include "comm/detail/progress.hpp"
#include "comm/detail/store.hpp"
#include "comm/detail/watchdog.hpp"
#include "comm/world.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace colossal::detail {

/// Connection, progress and watchdog of this rank. All members but the watchdog and the notice
/// belong to the main thread.
struct Session {
  LaunchOptions launch;
  WorldTimeouts timeouts;
  std::unique_ptr<Store> store;
  Progress progress;
  DeviceWorks device_works;
  std::unique_ptr<FailureNotice> notice;
  std::unique_ptr<Watchdog> watchdog;
  /// The rank that the last fail_...() blames.
  std::optional<int> culprit;
  /// A collective has failed and the main thread finds out why; it will leave through abort().
  std::atomic<bool> explaining{false};

  /// Who hosts the store: rank 0, or the launcher.
  [[nodiscard]] int store_host() const { return launch.store_is_hosted ? kLauncherRank : 0; }
  /// An error of this rank, as its peers shall hear of it.
  [[nodiscard]] Failure failure_of(const Error& error) const;
  /// Why `collective` of these global ranks did not finish in time: comm "peer-failed" if a failure
  /// was reported, else comm "collective-timeout" naming the ranks that never entered it.
  [[noreturn]] void fail_timeout(const Collective& collective, const std::vector<int>& ranks);
  /// Why `collective` broke: comm "peer-failed" if a failure is reported within a few heartbeats,
  /// else comm "peer-lost" naming the ranks whose heartbeat has stopped.
  [[noreturn]] void fail_broken(const Collective& collective,
                                const std::vector<int>& ranks,
                                const std::string& reason);
  /// What the watchdog asks at each beat, with its own connection: a collective of a GPU that has
  /// failed or takes longer than the time-out, as comm "peer-lost" or "collective-timeout". Any
  /// thread.
  [[nodiscard]] std::optional<Failure> device_failure(Store& connection);
};

}  // namespace colossal::detail
