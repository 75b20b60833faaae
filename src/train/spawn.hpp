// What does the launcher of `train --nproc` do, before and while its ranks run?
#pragma once

#include "config/load.hpp"
#include "train/commands.hpp"

#include <string>
#include <vector>

namespace colossal {

/// What the launcher knows before it spawns ranks.
struct Launchable {
  int processes = 1;
  int exit_code = 0;  ///< of what stands in the way; reported already
  Loaded loaded;      ///< the configuration of the ranks, if nothing does
};

/// How `train` loads its configuration, without the number of processes.
[[nodiscard]] LoadOptions train_load_options(const TrainOptions& options);

/// Checks everything that can be checked before any process is spawned, and reports it. Errors:
/// usage "bad-nproc"; data; config.
[[nodiscard]] Launchable check_before_spawn(const TrainOptions& options);

/// The command line of the ranks.
[[nodiscard]] std::vector<std::string> rank_arguments(const TrainOptions& options);

/// Starts the ranks, starts them again as --max-restarts allows, and writes down how they ended.
/// Returns the exit code of the run. Errors: those of launch_local().
[[nodiscard]] int spawn_ranks(const Launchable& launchable, const TrainOptions& options);

}  // namespace colossal
