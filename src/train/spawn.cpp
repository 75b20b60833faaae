// How does a command become the ranks of --nproc, after everything that needs none was checked?
#include "train/spawn.hpp"

#include "comm/launch.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/signals.hpp"
#include "train/commands_config.hpp"
#include "train/environment.hpp"
#include "train/failure_record.hpp"
#include "train/late_errors.hpp"
#include "train/restart.hpp"
#include "train/resume.hpp"
#include "train/run_dir.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// The log of a rank, if the attempt that began at `since` has written one.
fs::path log_of(const fs::path& run, int rank, fs::file_time_type since) {
  const fs::path file = log::file_of(log_folder(run, last_attempt(run)), rank);
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(file, error);
  return error || written < since ? fs::path() : file;
}

/// Leaves in the run's folder what rank 0 would: why the run does not go on.
void record_refusal(const fs::path& folder, const Error& error) {
  const auto run_dir = RunDir::take_over(folder);
  if (run_dir == nullptr) {
    return;
  }
  FailureRecord record(folder);
  record.own(run_dir.get());
  record.write({.rank = -1,  // none has begun
                .exit_code = error.exit_code(),
                .id = std::string(error.id()),
                .message = error.what(),
                .phases = {},
                .key = "checkpoint.resume"});
}

/// Whether there is a checkpoint to go on from, if the folder has any. What is said of one that was
/// named by its path, or passed over, is said once, by rank 0.
void check_resume(const Config& config, const TrainOptions& options) {
  const auto& mode = config.checkpoint.resume;
  const bool by_word = mode == "auto" || mode == "require" || mode == "never";
  if (!by_word || options.overwrite) {
    return;
  }
  const fs::path folder = config.run.output_dir;
  try {
    blaming("checkpoint.resume", [&] {
      static_cast<void>(choose_resume({.mode = mode, .checkpoints = folder / "checkpoints"}));
    });
  } catch (const Error& error) {
    if (!options.dry_run) {
      record_refusal(folder, error);
    }
    throw;
  }
}

/// Whether data and output folder are as the configuration needs them: the exit code.
int check_host(const Loaded& loaded, const TrainOptions& options) {
  const Config& config = loaded.config;
  const int code = report_findings(
      check_with_data(loaded, *open_data(config).train), true, options.config.json_diagnostics);
  if (code != 0) {
    return code;  // no folder is made for it
  }
  const std::int64_t room_bytes = make_outline(config, 0).room_bytes(options.use_job_deadline);
  blaming("run.output_dir", [&] {
    check_writable(config.run.output_dir, room_bytes, options.overwrite);
    if (!options.dry_run) {
      check_unused(config.run.output_dir);
    }
  });
  check_resume(config, options);
  return code;
}

}  // namespace

LoadOptions train_load_options(const TrainOptions& options) {
  LoadOptions load = colossal::load_options(options.config);
  load.output_dir = options.output_dir;
  load.resume = options.overwrite ? std::optional<std::string>("never") : options.resume;
  return load;
}

Launchable check_before_spawn(const TrainOptions& options) {
  LoadOptions load = train_load_options(options);
  const std::optional<Loaded> unsized = load_or_report(options.config.config, load, false);
  const int processes = processes_of(*options.nproc, unsized);
  load.world_size = processes;
  load.world_origin = fmt::format("--nproc {}", *options.nproc);
  const bool json = options.config.json_diagnostics;
  std::optional<Loaded> loaded = load_or_report(options.config.config, load, true, json);
  if (!loaded) {
    return {.processes = processes, .exit_code = kConfigExit, .loaded = {}};
  }
  set_console(loaded->config.logging.console);
  Launchable launchable{.processes = processes, .exit_code = 0, .loaded = std::move(*loaded)};
  if (processes > 1 || options.max_restarts > 0) {  // else the one rank checks for itself
    launchable.exit_code =
        with_places(launchable.loaded, [&] { return check_host(launchable.loaded, options); });
  }
  return launchable;
}

std::vector<std::string> rank_arguments(const TrainOptions& options) {
  // What a rank fails with is told by its launcher, in one form.
  std::vector<std::string> arguments =
      with_option(without_options(without_nproc(options.arguments), {"--diagnostics"}),
                  "--run-time=" + options.config.run_time);
  // Restarts leave --overwrite out, and checkpoint.resume must not take its place.
  return options.overwrite && !options.resume ? with_option(std::move(arguments), "--resume=never")
                                              : arguments;
}

int spawn_ranks(const Launchable& launchable, const TrainOptions& options) {
  const fs::path run = launchable.loaded.config.run.output_dir;
  double since = unix_time();
  auto file_since = fs::file_time_type::clock::now();
  const std::vector<std::string> arguments = rank_arguments(options);
  RestartPolicy policy(
      options.dry_run ? 0 : options.max_restarts,
      std::chrono::milliseconds(std::llround(options.restart_delay_seconds * 1e3)));
  const auto restart = [&](const LaunchOutcome& outcome) -> std::optional<Restart> {
    const std::optional<std::int64_t> newest = newest_checkpoint(run);
    const RestartDecision decision = policy.decide(outcome, newest, newest_is_end(run));
    if (!decision.text.empty()) {
      log::console(decision.text);
    }
    if (!decision.wait) {
      return std::nullopt;
    }
    settle_run(run, {outcome.exit_code, outcome.failure, since, true});
    since = unix_time();
    file_since = fs::file_time_type::clock::now();
    return Restart{*decision.wait, to_resume(arguments, newest.has_value())};
  };
  const LaunchOutcome outcome =
      launch_local({.num_processes = launchable.processes,
                    .arguments = arguments,
                    .log_file = [&](int rank) { return log_of(run, rank, file_since); },
                    .ranks_save = !options.dry_run,
                    .restart = restart});
  if (outcome.between_starts) {
    // What the failed ranks had saved is all that a stop on request could have left.
    return newest_checkpoint(run) ? kStoppedExit : outcome.exit_code;
  }
  if (outcome.failure && options.config.json_diagnostics) {
    print_json(to_diagnostic(*outcome.failure, launchable.loaded));
  }
  if (outcome.exit_code != 0 && outcome.exit_code != kStoppedExit && !options.dry_run) {
    settle_run(run, {outcome.exit_code, outcome.failure, since, true});
  }
  return outcome.exit_code;
}

}  // namespace colossal
