// What does `train` do, from the command line to the last line of output?
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/commands.hpp"
#include "train/commands_config.hpp"
#include "train/environment.hpp"
#include "train/failure_record.hpp"
#include "train/late_errors.hpp"
#include "train/session.hpp"
#include "train/signals.hpp"
#include "train/spawn.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

int run_rank(const TrainOptions& options, const LaunchOptions& launch, SignalWatch& signals) {
  LoadOptions load = train_load_options(options);
  load.world_size = launch.world_size;
  load.world_origin = options.nproc ? fmt::format("--nproc {}", *options.nproc) : launch.origin;
  const bool print = speaks(launch) && !options.nproc;
  const bool json = speaks_json(launch, options.config.json_diagnostics);
  // Ranks of another launcher have no common start time yet: the first load takes a fixed one, so
  // that all of them agree on the configuration when they meet.
  const bool agree = options.config.run_time.empty() && launch.world_size > 1;
  load.run_time = agree ? "00000000-000000" : load.run_time;
  std::optional<Loaded> loaded = load_or_report(options.config.config, load, print, json);
  if (!loaded) {
    return kConfigExit;
  }
  if (!options.dry_run) {
    signals.serve(stop_signals(loaded->config));
  }
  const bool reload = agree && loaded->uses_run_time;
  FailureRecord failures(options.dry_run || reload ? "" : loaded->config.run.output_dir);
  std::mutex loading;  // the watchdog may tell of a failure meanwhile
  // The ranks' common start time, and what follows from it; false if that is an error.
  const auto load_again = [&](const Comm& world) {
    load.run_time = decide_on_rank_0(world, start_time);
    Loaded named = colossal::load(options.config.config, load);
    const bool tell = print && named.has_errors();  // its warnings have been told
    auto accepted = accept_or_report(std::move(named), tell, json);
    const std::lock_guard lock(loading);
    loaded = std::move(accepted);
    if (loaded) {
      failures.move_to(options.dry_run ? "" : loaded->config.run.output_dir);
    }
    return loaded.has_value();
  };
  std::optional<TrainSession> session;  // outlives an error: its folder stays locked meanwhile
  bool connected = false;
  const auto train = [&](World& world) {
    connected = true;
    if (reload && !load_again(world.comm())) {
      return kConfigExit;
    }
    const int code = with_places(
        *loaded, [&] { return session.emplace(options, *loaded, world, signals, failures).run(); });
    session.reset();
    return code;
  };
  const std::thread::id own_thread = std::this_thread::get_id();
  // Of several ranks, which end elsewhere, the first tells why, whichever has failed.
  const bool tells = options.config.json_diagnostics && launch.world_size > 1 && launch.rank == 0;
  const auto note_failure = [&](const RunFailure& failure) {
    failures.write(failure);
    // What ends this thread before the ranks are connected is thrown, and told where it leaves.
    const bool thrown = std::this_thread::get_id() == own_thread && !connected;
    const std::lock_guard lock(loading);
    if (tells && !thrown && loaded) {
      print_json(to_diagnostic(failure, *loaded));
    }
  };
  return with_places(
      *loaded, [&] { return run_connected(Config(loaded->config), launch, train, note_failure); });
}

}  // namespace

int run_train(const TrainOptions& given) {
  TrainOptions options = given;
  // A closed pipe (`| head`) or a lost peer must not kill a run: writes report it where it matters.
  std::signal(SIGPIPE, SIG_IGN);
  const LaunchOptions found = detect_launch(options.launch);
  if (!found.warning.empty()) {
    log::warn("{}", found.warning);
  }
  check(!options.overwrite || !options.resume || *options.resume == "never",
        ErrorKind::usage,
        "overwrite-resume",
        "--overwrite starts anew, --resume {} continues: give one of them",
        options.resume.value_or(""));
  check(options.nproc || options.max_restarts == 0,
        ErrorKind::usage,
        "restarts-without-nproc",
        "--max-restarts starts the ranks of --nproc again, and there is no --nproc\n  fix   add "
        "--nproc 1 or more; other launchers restart their ranks themselves");
  if (options.use_job_deadline) {
    static_cast<void>(job_end_time());  // that it is known, before anything begins
  }
  SignalWatch signals(options.dry_run ? SignalWatch::Mode::leave : SignalWatch::Mode::hold,
                      found.mode == "single" ? 0 : ::getppid());
  if (options.nproc) {
    refuse_nested_launch(found);
    if (options.config.run_time.empty()) {
      options.config.run_time = start_time();  // once, for the launcher and all its ranks
    }
    const Launchable launchable = check_before_spawn(options);
    if (launchable.exit_code != 0) {
      return launchable.exit_code;
    }
    if (launchable.processes > 1 || options.max_restarts > 0) {
      signals.hand_over();
      return spawn_ranks(launchable, options);
    }
  }
  return run_rank(options, found, signals);
}

}  // namespace colossal
