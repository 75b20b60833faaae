// What does each command of the program do? One function per command; the command line only fills
// the options.
#pragma once

#include "comm/launch_flags.hpp"
#include "core/log.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

struct Loaded;

/// A configuration as named on the command line.
struct ConfigOptions {
  std::string config;
  std::vector<std::string> overlays;  ///< --config-overlay files
  std::vector<std::string> sets;      ///< --set texts
  bool json_diagnostics = false;      ///< --diagnostics json
  std::string run_time;               ///< ${run.time} as the launcher took it; empty: taken here
};

/// What a run wants to have exported at its end.
struct WeightsExport {
  std::string checkpoint;
  std::string file;
  std::string dtype;  ///< fp32 or fp64
};

/// Command line of `train`.
struct TrainOptions {
  ConfigOptions config;
  std::optional<std::string> nproc;       ///< "auto" or a number
  LaunchFlags launch;                     ///< which launcher else, and where rank 0 is
  std::optional<std::string> resume;      ///< beats checkpoint.resume
  std::optional<std::string> output_dir;  ///< beats run.output_dir
  bool overwrite = false;
  bool dry_run = false;
  bool use_job_deadline = false;        ///< stops before the job that it runs in ends
  int max_restarts = 0;                 ///< --nproc: starts again after ranks were lost or killed
  double restart_delay_seconds = 5;     ///< before the first one; doubles
  std::vector<std::string> allow;       ///< --allow: resume differences the user accepts
  std::optional<log::Level> log_level;  ///< -q, -v: beats logging.level
  std::vector<std::string> arguments;   ///< argv[1..], for re-execution by --nproc and env.json
  std::function<void(const WeightsExport&)> export_weights;  ///< for checkpoint.export_at_end
};

/// Command line of `plan`.
struct PlanOptions {
  ConfigOptions config;
  std::optional<std::int64_t> world_size;  ///< unset: what parallel.* gives, else 1
  bool json = false;
  std::optional<std::string> lr_plot;     ///< file for a picture of the learning rate (SVG)
  std::optional<std::string> gpu_memory;  ///< "80GiB": beats run.device_memory
  bool strict = false;                    ///< a plan that does not fit is an error
};

/// Command line of `estimate`.
struct EstimateOptions {
  ConfigOptions config;
  std::vector<std::int64_t> worlds;       ///< empty: what parallel.* gives, else 1
  std::optional<std::string> gpu_memory;  ///< beats run.device_memory
  bool sweep_parallel = false;
  bool json = false;
};

/// Command line of `eval`.
struct EvalOptions {
  std::string checkpoint;               ///< checkpoint folder or run directory (its newest one)
  std::optional<std::string> config;    ///< unset: the configuration stored in the checkpoint
  ConfigOptions more;                   ///< overlays and --set; its `config` is not used
  std::optional<std::string> nproc;     ///< "auto" or a number
  LaunchFlags launch;                   ///< which launcher else, and where rank 0 is
  std::optional<log::Level> log_level;  ///< -q, -v: beats logging.level
  std::vector<std::string> arguments;   ///< argv[1..], for re-execution by --nproc
};

/// Command line of `doctor`.
struct DoctorOptions {
  std::optional<std::string> nproc;  ///< processes of the network test; unset: 2
  bool json = false;
  std::optional<std::string> probe;  ///< this is one of those processes: where rank 0 reports
};

/// Trains or continues a run; the last line of stdout is a JSON summary. Each command returns the
/// process exit code and writes results to stdout, everything else to stderr. Errors: all kinds.
int run_train(const TrainOptions& options);
/// Prints the plan that `train` would store, and warns of what does not fit. Errors: data; config
/// "memory-over" if strict.
int run_plan(const PlanOptions& options);
/// Prints what each layout of a configuration would need.
int run_estimate(const EstimateOptions& options);
/// Prints one JSON line with the loss of a checkpoint on the evaluation data. Errors: all kinds.
int run_eval(const EvalOptions& options);
/// Opens and checks the data of a valid configuration for `validate --data`, prints what they are
/// and returns the exit code; `json`: only diagnostics, as JSON lines. Errors: data.
int check_data(const Loaded& loaded, bool json);

/// Prints findings about this machine; exit code 9 if a run would fail on it. Errors: usage
/// "bad-nproc".
int run_doctor(const DoctorOptions& options);

/// "0.1.0+<git revision or 'unknown'>": part of checkpoints, env.json and the group check.
std::string build_id();

}  // namespace colossal
