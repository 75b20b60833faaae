// Does a signal ask for what the configuration says, and does the second one end the process?
#include "train/signals.hpp"

#include "config/config.hpp"
#include "core/log.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace colossal::test {

using namespace std::chrono_literals;
using WatchMode = SignalWatch::Mode;

namespace {

constexpr int kAlive = 42;

/// Exit code of a process that does this and then lives on, or 128 + n. Its signals are those of a
/// program that a terminal starts, its words go nowhere.
template <class Body>
int code_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
      std::signal(signal, SIG_DFL);
    }
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
    body();
    std::_Exit(kAlive);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Asks again and again for ten seconds, and never after a yes.
template <class Condition>
bool soon(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

void send(int signal) {
  ::kill(::getpid(), signal);
}

/// Sends and gives the watching thread time to act, if it does.
void send_and_wait(int signal) {
  send(signal);
  std::this_thread::sleep_for(200ms);
}

std::vector<int> sorted(std::vector<int> signals) {
  std::ranges::sort(signals);
  return signals;
}

}  // namespace

TEST_CASE("the configuration chooses the signals that stop", "[signals]") {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = std::nullopt;
  CHECK(sorted(stop_signals(config)) == sorted({SIGHUP, SIGTERM, SIGUSR1}));
  config.checkpoint.every_steps = 5;
  CHECK(sorted(stop_signals(config)) == sorted({SIGHUP, SIGINT, SIGTERM, SIGUSR1}));
  config.run.stop_signals = {"SIGUSR1"};
  CHECK(sorted(stop_signals(config)) == sorted({SIGHUP, SIGINT, SIGUSR1}));
  config.run.stop_signals = {};
  CHECK(sorted(stop_signals(config)) == sorted({SIGHUP, SIGINT}));
}

TEST_CASE("without a run, SIGINT and SIGTERM say goodbye and end with 128 + n", "[signals]") {
  for (const int signal : {SIGINT, SIGTERM}) {
    CHECK(code_of([&] {
            SignalWatch watch;
            watch.set_farewell([](int number) { std::_Exit(number); });  // shows that it was called
            send_and_wait(signal);
          }) == signal);
    CHECK(code_of([&] {
            const SignalWatch watch;
            send_and_wait(signal);
          }) == 128 + signal);
  }
  CHECK(code_of([] {
          const SignalWatch watch;
          send_and_wait(SIGUSR1);
        }) == 1000 + SIGUSR1);  // not watched
}

TEST_CASE("a request to stop is kept and told once", "[signals]") {
  CHECK(code_of([] {
          SignalWatch watch(WatchMode::hold);
          std::atomic<int> told{0};
          watch.set_notice([&](int signal) { told += signal; });
          watch.serve({SIGTERM, SIGUSR1});
          send(SIGUSR1);
          const bool kept = soon([&] { return watch.stop_request() == SIGUSR1; });
          send_and_wait(SIGUSR1);
          send_and_wait(SIGTERM);  // the first one of its kind
          const bool first = watch.stop_request() == SIGUSR1 && told == SIGUSR1;
          std::_Exit(kept && first ? 0 : 1);
        }) == 0);
}

TEST_CASE("a second urgent signal ends the process by its own number", "[signals]") {
  for (const int first : {SIGINT, SIGTERM}) {
    for (const int second : {SIGINT, SIGTERM}) {
      CHECK(code_of([&] {
              SignalWatch watch(WatchMode::hold);
              watch.serve({SIGTERM, SIGINT});
              send_and_wait(first);
              send_and_wait(second);
            }) == 128 + second);
    }
  }
}

TEST_CASE("signals that do not stop end at once", "[signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    CHECK(code_of([&] {
            SignalWatch watch(WatchMode::hold);
            watch.serve({});
            send_and_wait(signal);
          }) == 128 + signal);
  }
}

TEST_CASE("what arrived before the configuration was known is judged by it", "[signals]") {
  CHECK(code_of([] {
          SignalWatch watch(WatchMode::hold);
          send_and_wait(SIGTERM);
          watch.serve({SIGTERM});
          std::_Exit(watch.stop_request() == SIGTERM ? 0 : 1);
        }) == 0);
  CHECK(code_of([] {
          SignalWatch watch(WatchMode::hold);
          send_and_wait(SIGINT);
          watch.serve({SIGTERM});
        }) == 128 + SIGINT);
  CHECK(code_of([] {
          const SignalWatch watch(WatchMode::hold);
          send_and_wait(SIGTERM);
          send_and_wait(SIGTERM);  // nobody waits for ever
        }) == 128 + SIGTERM);
}

TEST_CASE("requests to save are taken one by one", "[signals]") {
  CHECK(code_of([] {
          SignalWatch watch(WatchMode::hold);
          send_and_wait(SIGUSR2);
          watch.serve({});
          const bool first = watch.take_save_request() && !watch.take_save_request();
          send_and_wait(SIGUSR2);
          const bool second = watch.take_save_request() && !watch.take_save_request();
          std::_Exit(first && second && watch.stop_request() == 0 ? 0 : 1);
        }) == 0);
}

TEST_CASE("a launcher's signals are counted apart", "[signals]") {
  // The launcher is the parent of the process that watches.
  const auto watching = [](int from_parent, int from_itself) {
    const pid_t child = ::fork();
    if (child == 0) {
      static_cast<void>(std::freopen("/dev/null", "w", stderr));
      SignalWatch watch(WatchMode::hold, ::getppid());
      watch.serve({SIGTERM});
      std::this_thread::sleep_for(500ms);
      for (int i = 0; i < from_itself; ++i) {
        send_and_wait(SIGTERM);
      }
      std::this_thread::sleep_for(1s);
      std::_Exit(kAlive);
    }
    for (int i = 0; i < from_parent; ++i) {
      std::this_thread::sleep_for(i == 0 ? 200ms : 300ms);
      ::kill(child, SIGTERM);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  };
  CHECK(watching(1, 1) == kAlive);
  CHECK(watching(2, 0) == 128 + SIGTERM);
  CHECK(watching(0, 2) == 128 + SIGTERM);
}

TEST_CASE("handing over leaves what was held for the next one", "[signals]") {
  CHECK(code_of([] {
          {
            SignalWatch watch(WatchMode::hold);
            send_and_wait(SIGTERM);
            send_and_wait(SIGUSR2);
            watch.hand_over();
          }
          sigset_t pending;
          sigpending(&pending);
          const bool kept =
              sigismember(&pending, SIGTERM) == 1 && sigismember(&pending, SIGUSR2) == 1;
          SignalWatch next(WatchMode::hold);
          next.serve({SIGTERM});
          const bool taken = soon([&] { return next.stop_request() == SIGTERM; }) &&
                             soon([&] { return next.take_save_request(); });
          std::_Exit(kept && taken ? 0 : 1);
        }) == 0);
}

}  // namespace colossal::test
