// What happens when a signal arrives? A run finishes its step, saves and stops; everything else
// says goodbye and ends with 128 + n.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace colossal {

struct Config;

/// The signals that make the run of `config` save and stop: run.stop_signals, SIGHUP, and SIGINT if
/// checkpoints have a cadence (who has none loses nothing by an end at once).
[[nodiscard]] std::vector<int> stop_signals(const Config& config);

/// While alive, signals are taken by a thread of its own and never interrupt another one. Must be
/// made before any other thread, so that all of them block these signals.
class SignalWatch {
 public:
  enum class Mode : std::uint8_t {
    leave,  ///< SIGINT and SIGTERM: the farewell, then std::_Exit(128 + n)
    hold,   ///< all of run_signals(): kept until serve() says what they mean
  };

  /// `launcher`: the process that started this rank and passes signals on; 0: there is none.
  explicit SignalWatch(Mode mode = Mode::leave, pid_t launcher = 0);
  /// Whatever has not been taken stays pending.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Mode::hold: from now on a signal of `stop` is a request to stop, SIGUSR2 one to save, and any
  /// other ends the process as in Mode::leave; so does a second SIGINT or SIGTERM. A rank counts
  /// those of its launcher and those of others apart, as batch systems signal both. What was held
  /// so far is treated alike.
  void serve(std::vector<int> stop);
  /// Mode::hold, instead of serve(): ends the watch and leaves what it held pending for the caller,
  /// who keeps it blocked.
  void hand_over();

  /// The first request to stop; 0: none. Any thread.
  [[nodiscard]] int stop_request() const noexcept { return stop_request_; }
  /// Whether a request to save has arrived since the last call. Any thread.
  [[nodiscard]] bool take_save_request() noexcept { return save_request_.exchange(false); }

  /// Sets what the watching thread calls before it ends the process (empty: nothing). It must not
  /// need anything that the main thread may hold for long.
  void set_farewell(std::function<void(int signal)> farewell);
  /// The same for the first request to stop, which the process outlives.
  void set_notice(std::function<void(int signal)> notice);

 private:
  void watch(const std::stop_token& stop);
  void take(int signal, bool from_launcher);
  void request_stop(int signal);
  [[noreturn]] void leave(int signal);
  void end_thread();

  Mode mode_;
  pid_t launcher_;
  sigset_t watched_;
  sigset_t before_;
  std::mutex mutex_;  ///< all below, but the atomics
  std::optional<std::vector<int>> stop_;
  int requests_ = 0;
  int launcher_requests_ = 0;
  std::function<void(int)> farewell_;
  std::function<void(int)> notice_;
  std::atomic<int> stop_request_{0};
  std::atomic<bool> save_request_{false};
  std::jthread thread_;
};

}  // namespace colossal
