// What does each command of the program do? One function per command; the command line only fills
// the options.
#pragma once

#include "core/log.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

struct ConfigOptions {
  std::string config;
  std::vector<std::string> sets;  ///< --set texts
};

struct TrainOptions {
  ConfigOptions config;
  std::optional<std::string> nproc;  ///< "auto" or a number
  std::optional<std::string> resume;
  std::optional<std::string> output_dir;
  bool overwrite = false;
  bool dry_run = false;
  std::vector<std::string> allow;       ///< --allow: resume differences the user accepts
  std::optional<log::Level> log_level;  ///< -q, -v: beats logging.level
  std::vector<std::string> arguments;   ///< argv[1..], for re-execution by --nproc
};

struct PlanOptions {
  ConfigOptions config;
  std::optional<std::int64_t> world_size;
  bool json = false;
};

struct EvalOptions {
  std::string checkpoint;  ///< checkpoint folder or run directory (newest complete one)
  std::optional<std::string> config;
  std::vector<std::string> sets;
  std::optional<std::string> nproc;
  std::optional<log::Level> log_level;
  std::vector<std::string> arguments;
};

struct ValidateOptions {
  std::vector<std::string> configs;
  std::vector<std::string> sets;
  std::optional<std::int64_t> world_size;
  bool data = false;
};

struct ShowOptions {
  ConfigOptions config;
  bool minimal = false;
};

/// Each returns the process exit code; results go to stdout, everything else to stderr.
int run_train(const TrainOptions& options);
int run_plan(const PlanOptions& options);
int run_eval(const EvalOptions& options);
int run_validate(const ValidateOptions& options);
int run_config_show(const ShowOptions& options);

/// "0.1.0+<git revision or 'unknown'>": part of checkpoints, env.json and the group check.
std::string build_id();

}  // namespace colossal
