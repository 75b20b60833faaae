// Which runs does a sweep file mean (config-and-cli section 8)? Its trials, each of them checked as
// a configuration is.
#pragma once

#include "config/load.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// One run of a sweep: the base configuration with some keys set.
struct SweepTrial {
  std::int64_t index = 0;
  std::string id;             ///< 8 hexadecimal digits: of the overrides and of what the base says
  std::string overrides;      ///< JSON object by key, numbers in one form
  std::vector<Related> sets;  ///< key, value as `--set` takes it, place in the sweep file
  /// "0007-3fa2c1d0": how its folder is called.
  [[nodiscard]] std::string name() const;
};

/// What load_sweep() found.
struct Sweep {
  std::string name;
  std::string base;                       ///< the configuration, absolute
  std::string output_dir;                 ///< the folder of all trials, absolute
  std::optional<std::string> nproc;       ///< of each trial: "auto" or a number; unset: one process
  std::int64_t parallel = 1;              ///< trials at a time
  std::int64_t retries = 0;               ///< of a trial after an exit code that may pass
  bool stops_on_failure = false;          ///< no trial starts after one has failed
  std::vector<SweepTrial> trials;         ///< complete only if !has_errors()
  std::vector<Diagnostic> diagnostics;    ///< errors of all trials, at most 20, sorted by place
  [[nodiscard]] bool has_errors() const;  ///< any diagnostic that is not a warning
};

/// Reads a sweep file, makes its trials and checks every one of them as load() does, for run.nproc
/// processes. Pure as load() is: whether a trial has run is not looked at. Never throws for bad
/// user input: that becomes diagnostics. Reports the ids of load() and sweep-reserved,
/// sweep-key-twice, sweep-zip, sweep-distribution, sweep-too-large, sweep-empty, exclude-unused,
/// duplicate-trial.
[[nodiscard]] Sweep load_sweep(const std::filesystem::path& yaml);

/// JSON Schema (draft-07) of sweep files, pretty-printed with a final newline.
[[nodiscard]] std::string sweep_schema();

}  // namespace colossal
