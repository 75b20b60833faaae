// Why did a run end? What the processes that are left know about the first failure.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace colossal {

/// The failure that ended a run.
struct RunFailure {
  /// Root cause: the rank that threw, died, hangs or does not fit into the group.
  int rank = 0;
  /// Exit code of that rank, or 128 + the signal that killed it; 8 where only peers know of it.
  int exit_code = 0;
  /// Id of the error, and its message without the id.
  std::string id;
  std::string message;
  /// What each rank last said it was doing, by rank; empty where nothing is known.
  std::vector<std::string> phases;
  /// The configuration's key that is at fault, "run.output_dir"; empty if none is known.
  std::string key = {};
};

/// Called once in a process that leaves because of a failure, before it does; on any thread. Must
/// not wait for the main thread, which may be stuck in a collective.
using FailureListener = std::function<void(const RunFailure&)>;

}  // namespace colossal
