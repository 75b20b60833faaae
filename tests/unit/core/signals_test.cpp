// Which signals does a run answer, and do they wait until it can?
#include "core/signals.hpp"

#include "support/catch.hpp"

#include <csignal>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using colossal::hold_run_signals;
using colossal::run_signals;
using colossal::signal_name;

namespace {

/// Restores mask and action of SIGHUP of this thread.
class SignalGuard {
 public:
  SignalGuard() {
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask_);
    ::sigaction(SIGHUP, nullptr, &hangup_);
  }
  ~SignalGuard() {
    ::sigaction(SIGHUP, &hangup_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  sigset_t mask_{};
  struct sigaction hangup_{};
};

bool is_held(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("a run answers five signals, and no hang-up that it was started to ignore", "[signals]") {
  const SignalGuard guard;
  std::signal(SIGHUP, SIG_DFL);
  sigset_t set = run_signals();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    INFO(signal_name(signal));
    CHECK(sigismember(&set, signal) == 1);
  }
  for (const int signal : {SIGPIPE, SIGSEGV, SIGCHLD, SIGQUIT, SIGALRM}) {
    INFO(signal_name(signal));
    CHECK(sigismember(&set, signal) == 0);
  }
  std::signal(SIGHUP, SIG_IGN);
  set = run_signals();
  CHECK(sigismember(&set, SIGHUP) == 0);
  CHECK(sigismember(&set, SIGTERM) == 1);
}

TEST_CASE("held signals wait, for threads made later and over an exec", "[signals]") {
  const SignalGuard guard;
  std::signal(SIGHUP, SIG_DFL);
  hold_run_signals();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    CHECK(is_held(signal));
  }
  CHECK_FALSE(is_held(SIGQUIT));
  bool inherited = false;
  std::thread([&] { inherited = is_held(SIGTERM) && is_held(SIGUSR2); }).join();
  CHECK(inherited);
  // A program that holds SIGTERM outlives it: 15 is bit 14 of SigBlk and of ShdPnd.
  const pid_t child = ::fork();
  if (child == 0) {
    ::kill(::getpid(), SIGTERM);
    ::execl("/bin/grep", "grep", "-q", "^ShdPnd:.*4[0-9a-f]\\{3\\}$", "/proc/self/status", nullptr);
    std::_Exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("signals have names", "[signals]") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(SIGUSR1) == "SIGUSR1");
  CHECK(signal_name(SIGHUP) == "SIGHUP");
  CHECK(signal_name(12345) == "signal 12345");
  CHECK(signal_name(-1) == "signal -1");
}
