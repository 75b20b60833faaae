// How does one command become N processes on this machine?
#pragma once

#include "comm/failure.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// How a local job ended.
struct LaunchOutcome {
  /// That of the root cause (earliest non-zero exit that is not 8, else the earliest), 75 if the
  /// ranks have saved and stopped, 128 + n after signal n, 0 if all succeeded.
  int exit_code = 0;
  /// Empty after success or a signal.
  std::optional<RunFailure> failure;
  /// The signal came while no rank ran, between a failure and a restart.
  bool between_starts = false;
  /// A signal to stop came while ranks ran, whatever has ended them.
  bool asked_to_stop = false;
};

/// How a job that has failed is started again.
struct Restart {
  std::chrono::milliseconds wait{0};
  /// argv of every process.
  std::vector<std::string> arguments;
};

/// What launch_local() starts.
struct LaunchRequest {
  int num_processes = 1;
  /// argv of every process, without --nproc.
  std::vector<std::string> arguments;
  /// Where a rank's log lies, for the failure block; an empty path or function: nowhere.
  std::function<std::filesystem::path(int rank)> log_file = {};
  /// The ranks answer all of run_signals() themselves, beginning with a save, and start with them
  /// held. Else SIGINT and SIGTERM end them, and no other is passed on.
  bool ranks_save = false;
  /// Asked after each failure whether to start again; empty: never.
  std::function<std::optional<Restart>(const LaunchOutcome&)> restart = {};
};

/// Hosts a TCPStore on a free port, re-executes this binary once per process with the torchrun
/// variables set, forwards their output line by line, and waits. A failing child is reported in the
/// store; what has not ended 3 s later is stopped (SIGTERM, 10 s, SIGKILL), and a block names the
/// root-cause rank, its code, its last error line and its log. Signals are passed on; after one
/// that ranks do not outlive they have 10 s, after another none. Errors: environment
/// "launch-spawn", "port-bind".
[[nodiscard]] LaunchOutcome launch_local(const LaunchRequest& request);

/// In a spawned child: die with the parent (PR_SET_PDEATHSIG) and re-check it is still there.
/// Returns whether this is one.
bool guard_child();

}  // namespace colossal
