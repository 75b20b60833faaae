// How are signals taken without a handler? Blocked everywhere, awaited by one thread, which leaves
// flags for the training loop.
#include "train/signals.hpp"

#include "config/config.hpp"
#include "core/log.hpp"
#include "core/signals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

sigset_t signals_of(SignalWatch::Mode mode) {
  if (mode == SignalWatch::Mode::hold) {
    return run_signals();
  }
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

bool ends_at_once_when_repeated(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

}  // namespace

std::vector<int> stop_signals(const Config& config) {
  std::vector<int> stop = {SIGHUP};
  if (config.checkpoint.has_cadence()) {
    stop.push_back(SIGINT);
  }
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const auto& named = config.run.stop_signals;
    if (std::ranges::find(named, signal_name(signal)) != named.end()) {
      stop.push_back(signal);
    }
  }
  return stop;
}

SignalWatch::SignalWatch(Mode mode, pid_t launcher)
    : mode_(mode), launcher_(launcher), watched_(signals_of(mode)) {
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

SignalWatch::~SignalWatch() {
  end_thread();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::end_thread() {
  if (thread_.joinable()) {
    thread_.request_stop();
    pthread_kill(thread_.native_handle(), SIGTERM);  // wakes sigwaitinfo; blocked everywhere else
    thread_.join();
  }
}

void SignalWatch::serve(std::vector<int> stop) {
  const std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
  if (const int held = stop_request_;
      held != 0 && std::ranges::find(*stop_, held) == stop_->end()) {
    leave(held);
  }
}

void SignalWatch::hand_over() {
  end_thread();
  pthread_sigmask(SIG_BLOCK, nullptr, &before_);  // the destructor leaves them blocked
  if (stop_request_ != 0) {
    ::kill(::getpid(), stop_request_);
  }
  if (take_save_request()) {
    ::kill(::getpid(), SIGUSR2);
  }
}

void SignalWatch::set_farewell(std::function<void(int signal)> farewell) {
  const std::lock_guard lock(mutex_);
  farewell_ = std::move(farewell);
}

void SignalWatch::set_notice(std::function<void(int signal)> notice) {
  const std::lock_guard lock(mutex_);
  notice_ = std::move(notice);
}

void SignalWatch::watch(const std::stop_token& stop) {
  for (;;) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&watched_, &info);
    if (stop.stop_requested()) {
      return;
    }
    if (signal > 0) {
      take(signal, launcher_ != 0 && info.si_pid == launcher_);
    }
  }
}

void SignalWatch::take(int signal, bool from_launcher) {
  const std::lock_guard lock(mutex_);
  if (mode_ == Mode::hold && signal == SIGUSR2) {
    save_request_ = true;
    return;
  }
  int& requests = from_launcher ? launcher_requests_ : requests_;
  requests += ends_at_once_when_repeated(signal) ? 1 : 0;
  const bool known = !stop_ || std::ranges::find(*stop_, signal) != stop_->end();
  if (mode_ == Mode::leave || requests > 1 || !known) {
    leave(signal);
  }
  if (stop_request_ == 0) {
    request_stop(signal);
  }
}

void SignalWatch::request_stop(int signal) {
  stop_request_ = signal;
  log::console(
      fmt::format("signal    {}: the run stops after {} step, with a checkpoint; a second one "
                  "ends it at once",
                  signal_name(signal),
                  notice_ ? "this" : "its first"));  // before the loop, this start has done none
  if (notice_) {
    notice_(signal);
  }
}

void SignalWatch::leave(int signal) {
  // From here another signal takes its default action: nothing below can make the process
  // immortal.
  pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
  if (farewell_) {
    farewell_(signal);
  }
  log::flush();
  std::_Exit(kSignalExit + signal);
}

}  // namespace colossal
