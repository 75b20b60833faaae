// What does `train` do, from the command line to the last line of output?
#include "comm/launch.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/commands.hpp"
#include "train/run_dir.hpp"
#include "train/session.hpp"
#include "train/signals.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

namespace colossal {
namespace {

constexpr int kConfigExit = static_cast<int>(ErrorKind::config);

LoadOptions load_options(const TrainOptions& options) {
  LoadOptions load;
  load.overrides = to_overrides(options.config.sets);
  load.output_dir = options.output_dir;
  load.resume = options.overwrite ? std::optional<std::string>("never") : options.resume;
  return load;
}

/// Everything that can be checked before any process is spawned; empty if the configuration is bad.
std::optional<int> check_before_spawn(const TrainOptions& options) {
  LoadOptions load = load_options(options);
  const std::optional<Config> unsized = load_or_report(options.config.config, load, false);
  load.world_size = num_processes(*options.nproc, unsized ? unsized->parallel.data : 0);
  load.world_origin = fmt::format("--nproc {}", *options.nproc);
  const std::optional<Config> config = load_or_report(options.config.config, load, true);
  if (!config) {
    return std::nullopt;
  }
  if (*load.world_size > 1) {
    check_writable(config->run.output_dir, make_plan(*config, 0).checkpoint_bytes);
    static_cast<void>(open_data(*config));
  }
  return static_cast<int>(*load.world_size);
}

int run_rank(const TrainOptions& options, const LaunchOptions& launch) {
  SignalWatch signals;
  LoadOptions load = load_options(options);
  load.world_size = launch.world_size;
  load.world_origin = options.nproc ? fmt::format("--nproc {}", *options.nproc) : launch.origin;
  const bool print = speaks(launch) && !options.nproc;
  const std::optional<Config> config = load_or_report(options.config.config, load, print);
  if (!config) {
    return kConfigExit;
  }
  return run_connected(*config, launch, [&](World& world) {
    return TrainSession(options, *config, world, signals).run();
  });
}

}  // namespace

int run_train(const TrainOptions& options) {
  // A closed pipe (`| head`) or a lost peer must not kill a run: writes report it where it matters.
  std::signal(SIGPIPE, SIG_IGN);
  const LaunchOptions launch = detect_launch();
  check(!options.overwrite || !options.resume || *options.resume == "never",
        ErrorKind::usage,
        "overwrite-resume",
        "--overwrite starts anew, --resume {} continues: give one of them",
        options.resume.value_or(""));
  if (options.nproc) {
    refuse_nested_launch(launch);
    const std::optional<int> processes = check_before_spawn(options);
    if (!processes) {
      return kConfigExit;
    }
    if (*processes > 1) {
      return launch_local(*processes, without_nproc(options.arguments));
    }
  }
  return run_rank(options, launch);
}

}  // namespace colossal
