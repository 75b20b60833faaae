// What does `train` do, from the command line to the last line of output?
#include "comm/launch.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/system.hpp"
#include "mesh/device.hpp"
#include "train/commands.hpp"
#include "train/commands_config.hpp"
#include "train/environment.hpp"
#include "train/failure_record.hpp"
#include "train/run_dir.hpp"
#include "train/session.hpp"
#include "train/signals.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr int kConfigExit = static_cast<int>(ErrorKind::config);

LoadOptions load_options(const TrainOptions& options) {
  LoadOptions load = colossal::load_options(options.config);
  load.output_dir = options.output_dir;
  load.resume = options.overwrite ? std::optional<std::string>("never") : options.resume;
  return load;
}

/// What the launcher knows before it spawns ranks.
struct Launchable {
  int processes = 1;
  int exit_code = 0;  ///< of what stands in the way; reported already
  std::string output_dir;
};

/// Everything that can be checked before any process is spawned.
Launchable check_before_spawn(const TrainOptions& options) {
  LoadOptions load = load_options(options);
  const std::optional<Loaded> unsized = load_or_report(options.config.config, load, false);
  const bool gpus = unsized && unsized->config.run.device != DeviceKind::cpu;
  const int processes = num_processes(*options.nproc,
                                      unsized ? unsized->config.parallel.data : 0,
                                      gpus ? std::ssize(survey_gpus().gpus) : 0);
  load.world_size = processes;
  load.world_origin = fmt::format("--nproc {}", *options.nproc);
  const std::optional<Loaded> loaded =
      load_or_report(options.config.config, load, true, options.config.json_diagnostics);
  if (!loaded) {
    return {.processes = processes, .exit_code = kConfigExit, .output_dir = {}};
  }
  const Config& config = loaded->config;
  Launchable launchable{
      .processes = processes, .exit_code = 0, .output_dir = config.run.output_dir};
  if (processes > 1) {  // else the one rank checks for itself
    check_writable(config.run.output_dir, make_plan(config, 0).checkpoint_bytes);
    launchable.exit_code =
        report_findings(check_with_data(*loaded, *open_data(config).train), true);
  }
  return launchable;
}

/// The log of a rank, if the attempt that began at `since` has written one.
fs::path log_of(const fs::path& run, int rank, fs::file_time_type since) {
  const fs::path file = log::file_of(log_folder(run, last_attempt(run)), rank);
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(file, error);
  return error || written < since ? fs::path() : file;
}

int launch(const Launchable& launchable, const TrainOptions& options) {
  const fs::path run = launchable.output_dir;
  const double since = unix_time();
  const auto file_since = fs::file_time_type::clock::now();
  std::vector<std::string> arguments = without_nproc(options.arguments);
  arguments.push_back("--run-time=" + options.config.run_time);
  const LaunchOutcome outcome =
      launch_local({.num_processes = launchable.processes,
                    .arguments = std::move(arguments),
                    .log_file = [&](int rank) { return log_of(run, rank, file_since); }});
  if (outcome.exit_code != 0 && !options.dry_run) {
    settle_run(run, {outcome.exit_code, outcome.failure, since, true});
  }
  return outcome.exit_code;
}

int run_rank(const TrainOptions& options, const LaunchOptions& launch) {
  SignalWatch signals;
  LoadOptions load = load_options(options);
  load.world_size = launch.world_size;
  load.world_origin = options.nproc ? fmt::format("--nproc {}", *options.nproc) : launch.origin;
  const bool print = speaks(launch) && !options.nproc;
  // Ranks of another launcher have no common start time yet: the first load takes a fixed one, so
  // that all of them agree on the configuration when they meet.
  const bool agree = options.config.run_time.empty() && launch.world_size > 1;
  load.run_time = agree ? "00000000-000000" : load.run_time;
  std::optional<Loaded> loaded =
      load_or_report(options.config.config, load, print, options.config.json_diagnostics);
  if (!loaded) {
    return kConfigExit;
  }
  const bool reload = agree && loaded->uses_run_time;
  FailureRecord failures(options.dry_run || reload ? "" : loaded->config.run.output_dir);
  // The ranks' common start time, and what follows from it; false if that is an error.
  const auto load_again = [&](const Comm& world) {
    load.run_time = decide_on_rank_0(world, start_time);
    Loaded named = colossal::load(options.config.config, load);
    const bool tell = print && named.has_errors();  // its warnings have been told
    loaded = accept_or_report(std::move(named), tell, options.config.json_diagnostics);
    if (loaded) {
      failures.move_to(options.dry_run ? "" : loaded->config.run.output_dir);
    }
    return loaded.has_value();
  };
  std::optional<TrainSession> session;  // outlives an error: its folder stays locked meanwhile
  return run_connected(
      Config(loaded->config),
      launch,
      [&](World& world) {
        if (reload && !load_again(world.comm())) {
          return kConfigExit;
        }
        const int code = session.emplace(options, *loaded, world, signals, failures).run();
        session.reset();
        return code;
      },
      [&](const RunFailure& failure) { failures.write(failure); });
}

}  // namespace

int run_train(const TrainOptions& given) {
  TrainOptions options = given;
  // A closed pipe (`| head`) or a lost peer must not kill a run: writes report it where it matters.
  std::signal(SIGPIPE, SIG_IGN);
  const LaunchOptions found = detect_launch();
  check(!options.overwrite || !options.resume || *options.resume == "never",
        ErrorKind::usage,
        "overwrite-resume",
        "--overwrite starts anew, --resume {} continues: give one of them",
        options.resume.value_or(""));
  if (options.nproc) {
    refuse_nested_launch(found);
    if (options.config.run_time.empty()) {
      options.config.run_time = start_time();  // once, for the launcher and all its ranks
    }
    const Launchable launchable = check_before_spawn(options);
    if (launchable.exit_code != 0) {
      return launchable.exit_code;
    }
    if (launchable.processes > 1) {
      return launch(launchable, options);
    }
  }
  return run_rank(options, found);
}

}  // namespace colossal
