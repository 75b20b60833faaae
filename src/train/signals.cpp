// How are signals taken without a handler? Blocked everywhere, awaited by one thread.
#include "train/signals.hpp"

#include "core/log.hpp"

#include <cstdlib>
#include <pthread.h>
#include <utility>

namespace colossal {

SignalWatch::SignalWatch() {
  sigemptyset(&watched_);
  sigaddset(&watched_, SIGINT);
  sigaddset(&watched_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

SignalWatch::~SignalWatch() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes sigwait; blocked everywhere else
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::set_farewell(std::function<void(int signal)> farewell) {
  const std::lock_guard lock(mutex_);
  farewell_ = std::move(farewell);
}

void SignalWatch::watch(const std::stop_token& stop) {
  int signal = 0;
  sigwait(&watched_, &signal);
  if (stop.stop_requested()) {
    return;
  }
  // From here a second signal takes its default action: nothing below can make the process
  // immortal.
  pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (farewell_) {
      farewell_(signal);
    }
  }
  log::flush();
  constexpr int kSignalBase = 128;
  std::_Exit(kSignalBase + signal);
}

}  // namespace colossal
