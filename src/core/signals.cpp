// How are the signals of a run held back until somebody can answer them?
#include "core/signals.hpp"

#include <cstring>
#include <pthread.h>
#include <signal.h>

namespace colossal {

sigset_t run_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, signal);
  }
  struct sigaction hangup{};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {  // a blocked signal would arrive although it is ignored
    sigaddset(&set, SIGHUP);
  }
  return set;
}

void hold_run_signals() {
  const sigset_t set = run_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace colossal
