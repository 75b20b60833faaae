// What do the commands of a sweep do? They read files only: the runs are started by a shell.
#pragma once

#include <cstdint>
#include <string>

namespace colossal {

/// Command line of `sweep expand`, `status` and `collect`.
struct SweepOptions {
  std::string file;
  /// How results are printed.
  enum class Form : std::uint8_t { text, json, commands, script, csv } form = Form::text;
  bool accept = false;            ///< folders of trials that the sweep no longer has are fine
  bool json_diagnostics = false;  ///< --diagnostics json
};

/// Prints one line a trial once all of them are valid: index, id, state and overrides with tabs
/// between; as commands: what starts it or continues it; as script: both, below a line of
/// run.parallel, retries and on_failure, for scripts/sweep.sh. Each returns the exit code. Errors:
/// config "sweep-changed".
int run_sweep_expand(const SweepOptions& options);
/// Prints how far each trial is.
int run_sweep_status(const SweepOptions& options);
/// Prints what each trial reached, and writes it to results.csv in the folder of the trials.
/// Errors: config "sweep-changed", environment "output-write".
int run_sweep_collect(const SweepOptions& options);
/// Prints the JSON Schema of sweep files.
int run_sweep_schema();

}  // namespace colossal
