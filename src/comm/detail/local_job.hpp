// How are the processes of one machine started, listened to and stopped?
#pragma once

#include "comm/detail/store.hpp"
#include "core/system.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace colossal::detail {

/// Holds the launcher's process id in every process it starts: marks the launch mode, and lets the
/// child check that its parent still lives.
inline constexpr const char* kLauncherVariable = "COLOSSAL_LAUNCHER_PID";

enum class Stream : std::uint8_t { out, err };

/// Bytes of one line that are held back until its end comes.
inline constexpr std::size_t kLongestPiece = 2U << 20U;

struct ChildExit {
  int rank = 0;
  pid_t pid = 0;
  /// Exit code, or 128 + the signal that killed it.
  int code = 0;
};

struct LocalJobOptions {
  int num_ranks = 1;
  /// argv of every child, beginning with the program's name; the program is this process's own
  /// binary.
  std::vector<std::string> arguments;
  /// Added to the inherited environment, beside the torchrun variables.
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// How often the job was started before.
  int attempt = 0;
  /// Children start with run_signals() blocked, and answer them later.
  bool hold_signals = false;
};

/// Processes of this binary, one per rank, in a process group of their own, with a store that this
/// process hosts. Their stdin is empty; their output arrives line by line. One thread only.
class LocalJob {
 public:
  /// Gets one line with its newline, the unfinished last one, or a piece of one that is longer than
  /// kLongestPiece.
  using LineSink = std::function<void(int rank, Stream stream, std::string_view line)>;

  /// Starts all processes. Errors: environment "launch-spawn"; those of Store::host.
  LocalJob(const LocalJobOptions& options, LineSink sink);
  /// Kills and reaps what still runs.
  ~LocalJob();
  LocalJob(const LocalJob&) = delete;
  LocalJob& operator=(const LocalJob&) = delete;

  /// Waits up to `timeout` for output, exits or input on `wake_fd` (-1: none); passes output on;
  /// returns new exits.
  std::vector<ChildExit> poll(std::chrono::milliseconds timeout, int wake_fd = -1);
  /// Ranks that have not ended.
  [[nodiscard]] int num_running() const;
  /// Process id of a rank.
  [[nodiscard]] pid_t pid(int rank) const;
  /// The store that this process hosts for the ranks.
  [[nodiscard]] Store& store() const { return *store_; }
  /// Sends a signal to every process of the job, also to processes that the ranks have started.
  void signal_all(int number) const;

 private:
  struct Pipe {
    Descriptor fd;
    std::string partial;
  };
  struct Child {
    pid_t pid = 0;
    bool running = false;
    Pipe out;
    Pipe err;
  };

  void start(int rank, const LocalJobOptions& options);
  void end() noexcept;
  void drain(int rank, Stream stream);
  void take(int rank, Stream stream, std::string_view bytes);
  void finish_output(int rank, Stream stream);
  [[nodiscard]] bool exit_is_near() const;
  std::vector<ChildExit> reap();

  LineSink sink_;
  std::unique_ptr<Store> store_;
  std::vector<Child> children_;
};

}  // namespace colossal::detail
