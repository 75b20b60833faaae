// How is a process started with posix_spawn, and how is its output read without blocking?
#include "comm/detail/local_job.hpp"

#include "comm/detail/peers.hpp"
#include "core/error.hpp"
#include "core/signals.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace colossal::detail {
namespace {

/// Reads of one pipe before the others get their turn: 1 MiB.
constexpr int kReadsPerCall = 64;

void check_system(int error_number, std::string_view what) {
  check(error_number == 0,
        ErrorKind::environment,
        "launch-spawn",
        "cannot start a rank: {}: {}",
        what,
        std::strerror(error_number));
}

/// Both ends of a pipe that no other child inherits; the read end does not block.
std::array<Descriptor, 2> open_pipe() {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// posix_spawn's two option objects.
class SpawnOptions {
 public:
  SpawnOptions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;

  void redirect(int out, int err) {
    posix_spawn_file_actions_addopen(
        &actions_, STDIN_FILENO, stdin_of_children().c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, err, STDERR_FILENO);
  }

  /// Joins the process group of `leader` (0: becomes one); stop signals get their default action
  /// even if this process ignores them, and only `blocked` ones are.
  void isolate(pid_t leader, const sigset_t& blocked) {
    sigset_t stop_signals;
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGINT);
    sigaddset(&stop_signals, SIGTERM);
    posix_spawnattr_setsigdefault(&attributes_, &stop_signals);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setpgroup(&attributes_, leader);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// The inherited environment with some variables replaced.
class Environment {
 public:
  Environment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      entries_.emplace_back(*entry);
    }
  }

  void set(const std::string& name, std::string_view value) {
    std::erase_if(entries_, [&](const std::string& e) { return e.starts_with(name + "="); });
    entries_.push_back(fmt::format("{}={}", name, value));
  }

  void set_default(const std::string& name, std::string_view value) {
    if (::getenv(name.c_str()) == nullptr) {
      set(name, value);
    }
  }

  std::vector<char*> pointers() {
    std::vector<char*> all;
    for (std::string& entry : entries_) {
      all.push_back(entry.data());
    }
    all.push_back(nullptr);
    return all;
  }

 private:
  std::vector<std::string> entries_;
};

Environment environment_of(int rank, int port, const LocalJobOptions& options) {
  Environment environment;
  const int num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  environment.set_default("OMP_NUM_THREADS",
                          std::to_string(std::max(1, num_cores / options.num_ranks)));
  const std::string num_ranks = std::to_string(options.num_ranks);
  environment.set("RANK", std::to_string(rank));
  environment.set("LOCAL_RANK", std::to_string(rank));
  environment.set("WORLD_SIZE", num_ranks);
  environment.set("LOCAL_WORLD_SIZE", num_ranks);
  environment.set("MASTER_ADDR", "127.0.0.1");
  environment.set("MASTER_PORT", std::to_string(port));
  // An outer launcher's is not ours.
  environment.set("TORCHELASTIC_RESTART_COUNT", std::to_string(options.attempt));
  environment.set(kLauncherVariable, std::to_string(::getpid()));
  environment.set(KeptFiles::kVariable, kept_files().value);
  for (const auto& [name, value] : options.environment) {
    environment.set(name, value);
  }
  return environment;
}

}  // namespace

LocalJob::LocalJob(const LocalJobOptions& options, LineSink sink)
    : sink_(std::move(sink)),
      store_(Store::host({.prefix = store_prefix(options.attempt)}, std::chrono::seconds(60))),
      children_(static_cast<std::size_t>(options.num_ranks)) {
  try {
    for (int rank = 0; rank < options.num_ranks; ++rank) {
      start(rank, options);
    }
  } catch (const Error&) {
    end();
    throw;
  }
}

LocalJob::~LocalJob() {
  end();
}

void LocalJob::end() noexcept {
  if (num_running() > 0) {
    signal_all(SIGKILL);
  }
  for (const Child& child : children_) {
    if (child.running) {
      ::waitpid(child.pid, nullptr, 0);
    }
  }
}

void LocalJob::start(int rank, const LocalJobOptions& options) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  auto out = open_pipe();
  auto err = open_pipe();
  child.out.fd = std::move(out[0]);
  child.err.fd = std::move(err[0]);
  SpawnOptions spawn;
  spawn.redirect(out[1].get(), err[1].get());
  sigset_t held;
  sigemptyset(&held);
  spawn.isolate(children_.front().pid, options.hold_signals ? run_signals() : held);
  Environment environment = environment_of(rank, store_->endpoint().port, options);
  std::vector<std::string> arguments = options.arguments;
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  const int failure = ::posix_spawn(&child.pid,
                                    "/proc/self/exe",
                                    spawn.actions(),
                                    spawn.attributes(),
                                    argv.data(),
                                    environment.pointers().data());
  check_system(failure, "posix_spawn");
  child.running = true;
}

std::vector<ChildExit> LocalJob::poll(std::chrono::milliseconds timeout, int wake_fd) {
  std::vector<pollfd> ready{{wake_fd, POLLIN, 0}};
  std::vector<std::pair<int, Stream>> sources{{-1, Stream::out}};
  for (std::size_t i = 0; i < children_.size(); ++i) {
    ready.push_back({children_[i].out.fd.get(), POLLIN, 0});
    ready.push_back({children_[i].err.fd.get(), POLLIN, 0});
    sources.emplace_back(static_cast<int>(i), Stream::out);
    sources.emplace_back(static_cast<int>(i), Stream::err);
  }
  // A child that has closed its output is about to exit, which poll() cannot see.
  const auto wait = exit_is_near() ? std::min(timeout, std::chrono::milliseconds(5)) : timeout;
  ::poll(ready.data(), ready.size(), static_cast<int>(wait.count()));
  for (std::size_t i = 1; i < ready.size(); ++i) {
    if (ready[i].revents != 0) {
      drain(sources[i].first, sources[i].second);
    }
  }
  return reap();
}

void LocalJob::drain(int rank, Stream stream) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  Pipe& pipe = stream == Stream::out ? child.out : child.err;
  std::array<char, 16384> buffer;
  // A child that writes without end must not keep its peers and the signals waiting.
  for (int reads = 0; reads < kReadsPerCall && pipe.fd.get() >= 0; ++reads) {
    const ssize_t count = ::read(pipe.fd.get(), buffer.data(), buffer.size());
    if (count < 0) {
      return;  // nothing more for now
    }
    if (count == 0) {
      finish_output(rank, stream);
      return;
    }
    take(rank, stream, std::string_view(buffer.data(), static_cast<std::size_t>(count)));
  }
}

void LocalJob::take(int rank, Stream stream, std::string_view bytes) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  std::string& partial = (stream == Stream::out ? child.out : child.err).partial;
  std::size_t searched = partial.size();  // up to here there is no end of line
  partial += bytes;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = partial.find('\n', searched)) != std::string::npos;) {
    sink_(rank, stream, std::string_view(partial).substr(begin, end + 1 - begin));
    begin = end + 1;
    searched = begin;
  }
  partial.erase(0, begin);
  if (partial.size() >= kLongestPiece) {
    sink_(rank, stream, partial);
    partial.clear();
  }
}

void LocalJob::finish_output(int rank, Stream stream) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  Pipe& pipe = stream == Stream::out ? child.out : child.err;
  if (!pipe.partial.empty()) {
    sink_(rank, stream, pipe.partial);
    pipe.partial.clear();
  }
  pipe.fd = Descriptor();
}

bool LocalJob::exit_is_near() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& child) {
    return child.running && child.out.fd.get() < 0 && child.err.fd.get() < 0;
  });
}

std::vector<ChildExit> LocalJob::reap() {
  std::vector<ChildExit> exits;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    int status = 0;
    if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) {
      continue;
    }
    child.running = false;
    const int rank = static_cast<int>(i);
    for (const Stream stream : {Stream::out, Stream::err}) {
      drain(rank, stream);
      finish_output(rank, stream);  // a grandchild may hold the pipe open; its output is not ours
    }
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    exits.push_back({rank, child.pid, code});
  }
  return exits;
}

int LocalJob::num_running() const {
  return static_cast<int>(
      std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.running; }));
}

pid_t LocalJob::pid(int rank) const {
  return children_[static_cast<std::size_t>(rank)].pid;
}

void LocalJob::signal_all(int number) const {
  if (children_.front().pid > 0) {
    ::kill(-children_.front().pid, number);
  }
}

}  // namespace colossal::detail
