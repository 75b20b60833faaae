// Who notices that a peer has failed while the main thread is busy or stuck?
#pragma once

#include "comm/detail/peers.hpp"
#include "comm/detail/progress.hpp"
#include "comm/detail/store.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

namespace colossal::detail {

struct WatchdogOptions {
  int rank = 0;
  int size = 1;
  /// Time between two beats.
  std::chrono::milliseconds interval{2'000};
  /// A peer that has not beaten for this long is lost.
  std::chrono::milliseconds peer_lost{60'000};
  /// Who hosts the store, a rank or kLauncherRank. The host leaves last, so that the others can
  /// read why.
  int store_host = 0;
  /// Asked at each beat whether this rank has failed without its main thread knowing.
  std::function<std::optional<Failure>(Store&)> inspect = {};
};

/// A thread with its own store connection: publishes this rank's beat, and leaves the process by
/// std::_Exit(8) when a failure was reported, a peer is lost or the store is gone. Rank 0 watches
/// all ranks, the others watch rank 0.
class Watchdog {
 public:
  /// Every rank has published a beat before. `progress` and `notice` outlive the object.
  Watchdog(std::unique_ptr<Store> store,
           const WatchdogOptions& options,
           Progress& progress,
           FailureNotice& notice);

  /// From now on the thread no longer ends the process: its owner is leaving by itself. Never
  /// blocks.
  void stand_down() noexcept;
  /// Looks for a reported failure now: if there is one, the process ends and this does not return.
  /// Gives up after `patience`. Any thread.
  void look_now(std::chrono::milliseconds patience);
  /// Stops the thread; waits for at most one store call. May be called again.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::int64_t count = 0;
    Clock::time_point when;
  };

  void run(const std::stop_token& stop);
  void tick();
  void check_peers();
  void leave(const Failure& failure);

  std::unique_ptr<Store> store_;
  WatchdogOptions options_;
  Progress& progress_;
  FailureNotice& notice_;
  std::vector<int> watched_;
  std::map<int, Seen> seen_;
  std::atomic<bool> standing_down_{false};
  std::atomic<int> asked_{0};   ///< calls of look_now()
  std::atomic<int> looked_{0};  ///< those of them that a whole tick has come after
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: stops before what it uses is gone
};

}  // namespace colossal::detail
