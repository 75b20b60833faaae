// How far are the trials of a sweep, and how well did they do? Read from their run directories.
#pragma once

#include "config/sweep.hpp"
#include "train/table.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// One trial and what its run directory tells.
struct TrialRun {
  SweepTrial trial;
  std::filesystem::path folder;  ///< exists unless the state is "pending"
  /// "pending", a state of status.json, "lost" for a run whose process has ended without a word, or
  /// "unknown" if status.json cannot be read.
  std::string state;
  std::int64_t step = 0;
  std::int64_t total = 0;  ///< 0: unknown
  std::int64_t attempt = 0;
  std::optional<std::int64_t> exit_code = {};

  std::optional<double> loss = {};       ///< of the last training record
  std::optional<double> eval_loss = {};  ///< of the last evaluation
  std::optional<double> best_eval_loss = {};
  std::optional<double> accuracy = {};  ///< of the last evaluation of a classifier
  double seconds = 0;                   ///< between first and last record, summed over attempts
};

/// All trials in order. A trial that was run under another index keeps its folder: the id decides.
[[nodiscard]] std::vector<TrialRun> trial_runs(const Sweep& sweep);

/// Folders of trials that the sweep no longer has: their base or their values were changed.
[[nodiscard]] std::vector<std::filesystem::path> left_over(const Sweep& sweep);

/// One row a trial below one of titles: name, state, steps, attempt, exit, the swept keys.
[[nodiscard]] std::vector<TableRow> status_rows(const std::vector<TrialRun>& runs);

/// One row a trial below one of titles: name, state, the swept keys, metrics, steps, seconds, exit,
/// folder; numbers with full precision if `exact`. Columns of metrics that no trial has are left
/// out.
[[nodiscard]] std::vector<TableRow> result_rows(const std::vector<TrialRun>& runs, bool exact);

/// "4 trials: 2 finished, 1 running, 1 pending".
[[nodiscard]] std::string count_states(const std::vector<TrialRun>& runs);

/// A list of objects, one a trial: everything of TrialRun.
[[nodiscard]] std::string to_json(const std::vector<TrialRun>& runs);

}  // namespace colossal
