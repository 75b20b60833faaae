// What remains of a run that failed? abort.json, and a status.json that says so.
#pragma once

#include "comm/failure.hpp"
#include "train/run_dir.hpp"

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

namespace colossal {

/// How a run ended, told by a process that may not be its rank 0.
struct RunEnding {
  /// Of the whole run.
  int exit_code = 0;
  /// Empty: a signal stopped it.
  std::optional<RunFailure> failure;
  /// When the teller's attempt began, in seconds since 1970: older files belong to other attempts.
  double since = 0;
  /// The launcher has seen all ranks end, so that it knows better than any of them.
  bool by_launcher = false;
};

/// abort.json of one attempt: root cause, and the last phase of each rank.
[[nodiscard]] std::string abort_json(const RunFailure& failure, std::int64_t attempt);

/// Writes abort.json and status.json into the folder of a run that no process owns any more. Does
/// nothing if the folder does not exist or is in use; never throws. A status of another attempt
/// stays, unless it says that a process is running. Where the launcher has seen a signal end the
/// run, an abort.json of this attempt with the code of comm goes: ranks whose peers the signal
/// reached first wrote it. What a rank failed with by itself stays.
void settle_run(const std::filesystem::path& folder, const RunEnding& ending);

/// The listener of one rank: writes the same files, through the run directory while this rank owns
/// it. Made before the ranks connect.
class FailureRecord {
 public:
  /// An empty folder: nothing is written.
  explicit FailureRecord(std::filesystem::path folder);

  /// The folder's name has become known, or has changed. Any thread.
  void move_to(std::filesystem::path folder);
  /// The run directory that this rank owns from now on, or null. Must outlive its registration.
  void own(const RunDir* run_dir);
  /// Writes down why the run ends. Any thread.
  void write(const RunFailure& failure) const;

 private:
  std::filesystem::path folder_;
  double since_;
  mutable std::mutex mutex_;
  const RunDir* run_dir_ = nullptr;
};

}  // namespace colossal
