// Who decides that a local job is over, and with which exit code?
#include "comm/launch.hpp"

#include "comm/detail/launch_output.hpp"
#include "comm/detail/local_job.hpp"
#include "comm/detail/peers.hpp"
#include "core/color.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/signals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace colossal {
namespace {

using Clock = std::chrono::steady_clock;
using detail::ChildExit;

constexpr int kPeerFailed = static_cast<int>(ErrorKind::comm);
/// After a signal that stops the job ranks get this long to end, then SIGKILL.
constexpr std::chrono::seconds kTermination{10};
/// All ranks have ended this long after the first failure (architecture: within ten seconds).
constexpr std::chrono::seconds kFailureEnd{8};
/// Ranks hear of a failure with their next heartbeat, of 2 s, and write down why they leave, which
/// SIGTERM would cut short. A rank that only noticed may also be seen before the culprit.
constexpr std::chrono::seconds kNotice{3};
constexpr std::chrono::milliseconds kPoll{200};

bool is_urgent(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

/// Signals as a file descriptor, blocked while it lives: no handler, no global flag.
class StopSignals {
 public:
  /// SIGINT and SIGTERM, or all that runs answer.
  explicit StopSignals(bool all) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    set = all ? run_signals() : set;
    fd_ = Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    // Before they are blocked: signals that nobody reads would make the job unstoppable.
    check(
        fd_.get() >= 0,
        ErrorKind::environment,
        "launch-spawn",
        "cannot start the ranks: signalfd: {}\n  fix   close other programs, or raise `ulimit -n`",
        std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~StopSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The number of a signal that has arrived.
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) != sizeof info) {
      return std::nullopt;
    }
    return static_cast<int>(info.ssi_signo);
  }
  /// A signal to stop that arrives within `time`.
  [[nodiscard]] std::optional<int> wait(std::chrono::milliseconds time) const {
    const auto deadline = Clock::now() + time;
    for (auto left = time; left.count() > 0;
         left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now())) {
      pollfd ready{fd_.get(), POLLIN, 0};
      ::poll(&ready, 1, static_cast<int>(left.count()));
      const std::optional<int> signal = next();
      if (signal && *signal != SIGUSR2) {  // nothing to save
        return signal;
      }
    }
    return std::nullopt;
  }

 private:
  sigset_t before_{};
  Descriptor fd_;
};

void write_through(detail::Stream stream, std::string_view line) {
  std::FILE* file = stream == detail::Stream::out ? stdout : stderr;
  // Ranks write plain words, which are compared and merged.
  const bool colored = stream == detail::Stream::err && use_color(STDERR_FILENO);
  const std::string text = colored ? paint_severity(line) : std::string(line);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!written && errno == EPIPE) {
    std::clearerr(file);  // the reader had enough; anything else stays for whoever ends the program
  }
}

/// "killed by signal 9 (Killed)" or "ended with exit code 9".
std::string describe_exit(int code) {
  const int signal = code - kSignalExit;
  return signal > 0 ? fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal))
                    : fmt::format("ended with exit code {}", code);
}

std::string explain_code(int code) {
  if (code > kSignalExit) {
    return fmt::format("{} ({})", code, ::strsignal(code - kSignalExit));
  }
  if (code >= static_cast<int>(ErrorKind::internal) &&
      code <= static_cast<int>(ErrorKind::environment)) {
    return fmt::format("{} ({})", code, name(static_cast<ErrorKind>(code)));
  }
  return std::to_string(code);
}

/// A failure of which the store knows nothing: from the rank's last line, if that says an error,
/// else from its exit code alone.
detail::Failure failure_of(const ChildExit& exit, std::string_view last_line) {
  detail::Failure failure{detail::kLauncherRank, exit.rank, exit.code, "peer-lost", ""};
  failure.text = fmt::format("rank {} {} without a message", exit.rank, describe_exit(exit.code));
  const std::size_t begin = log::error_message_at(last_line);
  const std::size_t open = last_line.rfind(" [");
  if (begin != std::string_view::npos && last_line.ends_with("]") &&
      open != std::string_view::npos && open >= begin && exit.code < kSignalExit) {
    failure.text = last_line.substr(begin, open - begin);
    failure.id = last_line.substr(open + 2, last_line.size() - open - 3);
  }
  return failure;
}

/// Runs one job to its end.
class Supervisor {
 public:
  Supervisor(const detail::LocalJobOptions& options,
             const LaunchRequest& request,
             const StopSignals& signals)
      : request_(request),
        signals_(signals),
        output_(options.num_ranks, write_through),
        job_(options, [this](int rank, detail::Stream stream, std::string_view line) {
          output_.line(rank, stream, line, Clock::now());
        }) {}

  LaunchOutcome run() {
    while (job_.num_running() > 0) {
      const std::vector<ChildExit> exits = job_.poll(kPoll, signals_.fd());
      while (const auto signal = signals_.next()) {  // first: it may be why they ended
        forward(*signal);
      }
      for (const ChildExit& exit : exits) {
        note(exit);
      }
      stop_if_due();
      output_.flush(Clock::now());
    }
    output_.flush_all();
    if (culprit_) {  // before any signal: a signal does not undo a failure
      const RunFailure failure = root_cause();
      print_failure(failure);
      return {failure.exit_code, failure, false, stop_signal_.has_value()};
    }
    if (stopped_) {
      return {kStoppedExit, std::nullopt};
    }
    const bool ended = stop_signal_ && (cut_short_ || !request_.ranks_save);
    return {ended ? kSignalExit + *stop_signal_ : 0, std::nullopt};
  }

 private:
  /// Keeps the root cause: the earliest failure that is not a mere report of another one, else the
  /// earliest. Deaths that this launcher caused are none.
  void note(const ChildExit& exit) {
    if (exit.code == 0) {
      return;
    }
    if (exit.code == kStoppedExit) {
      stopped_ = true;
      return;
    }
    if (stop_signal_ && !culprit_ && exit.code == kSignalExit + *stop_signal_) {
      kill_at_ = kill_at_.value_or(Clock::now() + kTermination);  // it did not wait for a step
    }
    if (kill_at_) {
      cut_short_ = true;
      return;
    }
    const bool noticed = exit.code == kPeerFailed;
    if (!culprit_ || (culprit_->code == kPeerFailed && !noticed)) {
      culprit_ = exit;
      stop_at_ = std::min(stop_at_, Clock::now() + kNotice);
      end_at_ = std::min(end_at_, Clock::now() + kFailureEnd);
    }
    if (!noticed) {
      detail::report_failure(job_.store(), failure_of(exit, output_.last_error(exit.rank)));
    }
  }

  /// Ranks that save are given time without end after a first signal.
  void forward(int signal) {
    const int allowed = request_.ranks_save ? 2 : 1;
    num_urgent_ += is_urgent(signal) ? 1 : 0;
    job_.signal_all(num_urgent_ > allowed ? SIGKILL : signal);
    if (signal != SIGUSR2) {
      stop_signal_ = signal;
    }
    if (num_urgent_ >= allowed && !kill_at_) {
      kill_at_ = Clock::now() + kTermination;
    }
  }

  void stop_if_due() {
    const auto now = Clock::now();
    if (!kill_at_ && culprit_ && now >= stop_at_ && job_.num_running() > 0) {
      // Those that are still connecting look for it there; nothing changes if it is known.
      detail::report_failure(job_.store(),
                             failure_of(*culprit_, output_.last_error(culprit_->rank)));
      job_.signal_all(SIGTERM);
      kill_at_ = end_at_;
    }
    if (now >= std::min(kill_at_.value_or(end_at_), end_at_)) {
      job_.signal_all(SIGKILL);
    }
  }

  /// What the ranks have reported about the culprit, or what its end tells.
  [[nodiscard]] RunFailure root_cause() const {
    detail::Failure own = failure_of(*culprit_, output_.last_error(culprit_->rank));
    const auto reported = detail::reported_failure(job_.store());
    // Peers know more about a rank that hangs, and its own words more than its end; what they say
    // about one that was killed is a guess.
    const bool better =
        reported && (culprit_->code == kPeerFailed || reported->exit_code == culprit_->code);
    return detail::with_phases(better ? *reported : own, job_.store(), request_.num_processes);
  }

  void print_failure(const RunFailure& failure) const {
    const bool known = failure.rank >= 0;
    // Without a word in the store, a rank with this code has only noticed what another one did.
    const bool noticed = failure.exit_code == kPeerFailed && failure.id == "peer-lost" &&
                         failure.rank == culprit_->rank;
    std::string block = fmt::format("launch: rank {} of {} (process {}) {}\n  code  {}\n",
                                    known ? failure.rank : culprit_->rank,
                                    request_.num_processes,
                                    job_.pid(known ? failure.rank : culprit_->rank),
                                    noticed ? "was the first to notice a failure" : "ended the run",
                                    explain_code(failure.exit_code));
    const std::string told = log::with_id(failure.message, failure.id);
    block += fmt::format("  last  error: {}\n", told.substr(0, told.find('\n')));
    const auto log = request_.log_file && known ? request_.log_file(failure.rank) : "";
    if (!log.empty()) {
      block += fmt::format("  log   {}\n", log.string());
    }
    write_through(detail::Stream::err, block);
  }

  const LaunchRequest& request_;
  const StopSignals& signals_;
  detail::LaunchOutput output_;
  detail::LocalJob job_;
  std::optional<ChildExit> culprit_;
  Clock::time_point stop_at_ = Clock::time_point::max();
  Clock::time_point end_at_ = Clock::time_point::max();
  std::optional<Clock::time_point> kill_at_;
  std::optional<int> stop_signal_;  ///< the last one
  int num_urgent_ = 0;
  bool stopped_ = false;    ///< ranks have saved and stopped
  bool cut_short_ = false;  ///< ranks have ended by a signal
};

}  // namespace

LaunchOutcome launch_local(const LaunchRequest& request) {
  // Blocks them before the store's thread exists, which inherits that.
  const StopSignals signals(request.ranks_save);
  detail::LocalJobOptions options;
  options.num_ranks = request.num_processes;
  options.arguments = request.arguments;
  options.hold_signals = request.ranks_save;
  for (;; ++options.attempt) {
    const LaunchOutcome outcome = Supervisor(options, request, signals).run();
    const std::optional<Restart> restart =
        request.restart && outcome.failure ? request.restart(outcome) : std::nullopt;
    if (!restart) {
      return outcome;
    }
    if (const std::optional<int> signal = signals.wait(restart->wait)) {
      return {kSignalExit + *signal, std::nullopt, true};
    }
    options.arguments = restart->arguments;
  }
}

bool guard_child() {
  const char* launcher = std::getenv(detail::kLauncherVariable);
  if (launcher == nullptr) {
    return false;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above took effect.
  if (std::to_string(::getppid()) != launcher) {
    std::_Exit(kPeerFailed);
  }
  return true;
}

}  // namespace colossal
