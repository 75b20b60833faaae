// Who decides that a local job is over, and with which exit code?
#include "comm/launch.hpp"

#include "comm/detail/launch_output.hpp"
#include "comm/detail/local_job.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace colossal {
namespace {

using Clock = std::chrono::steady_clock;
using detail::ChildExit;

constexpr int kPeerFailed = static_cast<int>(ErrorKind::comm);
/// Ranks get this long to end after SIGTERM, then SIGKILL.
constexpr std::chrono::seconds kTermination{10};
/// A rank that only noticed another one's failure may be seen first; the culprit has this long to
/// show up.
constexpr std::chrono::seconds kCulprit{3};
constexpr std::chrono::milliseconds kPoll{200};

/// SIGINT and SIGTERM as a file descriptor, blocked while it lives: no handler, no global flag.
class StopSignals {
 public:
  StopSignals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~StopSignals() {
    ::close(fd_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  /// The number of a signal that has arrived.
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) {
      return std::nullopt;
    }
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_{};
  int fd_ = -1;
};

void write_through(detail::Stream stream, std::string_view text) {
  std::FILE* file = stream == detail::Stream::out ? stdout : stderr;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

std::string explain_code(int code) {
  if (code > 128) {
    return fmt::format("{} (killed by signal {}, {})", code, code - 128, ::strsignal(code - 128));
  }
  if (code >= static_cast<int>(ErrorKind::internal) &&
      code <= static_cast<int>(ErrorKind::environment)) {
    return fmt::format("{} ({})", code, name(static_cast<ErrorKind>(code)));
  }
  return std::to_string(code);
}

/// Runs one job to its end.
class Supervisor {
 public:
  explicit Supervisor(const detail::LocalJobOptions& options)
      : num_ranks_(options.num_ranks),
        output_(options.num_ranks, write_through),
        job_(options, [this](int rank, detail::Stream stream, std::string_view line) {
          output_.line(rank, stream, line, Clock::now());
        }) {}

  int run() {
    while (job_.num_running() > 0) {
      for (const ChildExit& exit : job_.poll(kPoll, signals_.fd())) {
        note(exit);
      }
      while (const auto signal = signals_.next()) {
        forward(*signal);
      }
      stop_if_due();
      output_.flush(Clock::now());
    }
    output_.flush_all();
    if (stop_signal_) {
      return 128 + *stop_signal_;
    }
    if (culprit_) {
      print_failure();
    }
    return culprit_ ? culprit_->code : 0;
  }

 private:
  /// Keeps the root cause: the earliest failure that is not a mere report of another one, else the
  /// earliest. Deaths that this launcher caused are none.
  void note(const ChildExit& exit) {
    if (exit.code == 0 || kill_at_) {
      return;
    }
    if (!culprit_ || (culprit_->code == kPeerFailed && exit.code != kPeerFailed)) {
      culprit_ = exit;
      stop_at_ = Clock::now() + (exit.code == kPeerFailed ? kCulprit : std::chrono::seconds(0));
    }
  }

  void forward(int signal) {
    if (stop_signal_) {
      job_.signal_all(SIGKILL);
      return;
    }
    stop_signal_ = signal;
    job_.signal_all(signal);
    kill_at_ = Clock::now() + kTermination;
  }

  void stop_if_due() {
    const auto now = Clock::now();
    if (!kill_at_ && culprit_ && now >= stop_at_ && job_.num_running() > 0) {
      job_.signal_all(SIGTERM);
      kill_at_ = now + kTermination;
    }
    if (kill_at_ && now >= *kill_at_) {
      job_.signal_all(SIGKILL);
    }
  }

  void print_failure() const {
    const std::string& last_line = output_.last_error(culprit_->rank);
    // A rank with this code only noticed: its message names the culprit.
    const bool noticed = culprit_->code == kPeerFailed;
    std::string block = fmt::format("launch: rank {} of {} (process {}) {}\n  code  {}\n",
                                    culprit_->rank,
                                    num_ranks_,
                                    culprit_->pid,
                                    noticed ? "was the first to notice a failure" : "ended the run",
                                    explain_code(culprit_->code));
    if (!last_line.empty()) {
      block += fmt::format("  last  {}\n", last_line);
    }
    write_through(detail::Stream::err, block);
  }

  int num_ranks_;
  StopSignals signals_;  // blocks them before the store's thread exists, which inherits that
  detail::LaunchOutput output_;
  detail::LocalJob job_;
  std::optional<ChildExit> culprit_;
  Clock::time_point stop_at_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<int> stop_signal_;
};

}  // namespace

int launch_local(int num_processes, const std::vector<std::string>& arguments) {
  detail::LocalJobOptions options;
  options.num_ranks = num_processes;
  options.arguments = arguments;
  return Supervisor(options).run();
}

void guard_child() {
  const char* launcher = std::getenv(detail::kLauncherVariable);
  if (launcher == nullptr) {
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above took effect.
  if (std::to_string(::getppid()) != launcher) {
    std::_Exit(kPeerFailed);
  }
}

}  // namespace colossal
