// What happens on SIGINT and SIGTERM? The process says goodbye and ends with 128 + n.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace colossal {

/// While alive, SIGINT and SIGTERM are taken by a thread of its own, which runs the farewell,
/// flushes the logs and leaves by std::_Exit(128 + n); a second signal kills at once. Must be made
/// before any other thread, so that all of them block these signals. Checkpoint-on-signal does not
/// exist yet: whatever was not saved is lost.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Sets what the watching thread calls before it ends the process (empty: nothing). It must not
  /// need anything that the main thread may hold for long.
  void set_farewell(std::function<void(int signal)> farewell);

 private:
  void watch(const std::stop_token& stop);

  sigset_t watched_;
  sigset_t before_;
  std::mutex mutex_;
  std::function<void(int)> farewell_;
  std::jthread thread_;
};

}  // namespace colossal
