// Who started this process, and as which rank?
#include "comm/detail/launchers.hpp"
#include "comm/detail/local_job.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

using detail::kMostRanks;
using detail::variable;
using detail::VariableReader;

constexpr int kMostRestarts = 1'000'000;
constexpr int kLargestPort = 65535;
constexpr std::string_view kFilePrefix = "file:";

bool is_spawned() {
  return variable(detail::kLauncherVariable).has_value();
}

/// A child of --nproc, or a process of torchrun.
LaunchOptions torchrun_launch() {
  LaunchOptions options;
  VariableReader reader;
  const std::int64_t size = reader.number("WORLD_SIZE", 1, kMostRanks);
  options.world_size = static_cast<int>(size);
  options.rank = static_cast<int>(reader.number("RANK", 0, size - 1));
  options.local_world_size = static_cast<int>(reader.number("LOCAL_WORLD_SIZE", 1, size));
  options.local_rank =
      static_cast<int>(reader.number("LOCAL_RANK", 0, options.local_world_size - 1));
  options.address = reader.text("MASTER_ADDR");
  options.port = static_cast<int>(reader.number("MASTER_PORT", 1, kLargestPort));
  if (variable("TORCHELASTIC_RESTART_COUNT")) {
    options.attempt =
        static_cast<int>(reader.number("TORCHELASTIC_RESTART_COUNT", 0, kMostRestarts));
  }
  reader.finish(
      "start with torchrun or --nproc, or unset RANK and WORLD_SIZE for a single process");
  options.mode = is_spawned() ? "spawn" : "torchrun";
  options.origin = fmt::format("WORLD_SIZE={} set by {}",
                               options.world_size,
                               is_spawned() ? "--nproc" : "torchrun or a compatible launcher");
  options.store_is_hosted = is_spawned() || variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return options;
}

/// A whole number, or 0 if the variable is absent or something else.
int number_of(const char* name) {
  return std::atoi(variable(name).value_or("0").c_str());
}

/// Slurm has given this job several tasks, and this process is none of them.
LaunchOptions single_launch() {
  LaunchOptions options;
  if (!detail::in_slurm_step() && number_of("SLURM_NTASKS") > 1) {
    options.warning = fmt::format(
        "[slurm-no-srun] running 1 process of an allocation of {} tasks; start with srun",
        number_of("SLURM_NTASKS"));
  }
  return options;
}

using Launcher = LaunchOptions (*)();

struct Mode {
  std::string_view word;
  Launcher launch;
};

constexpr std::array<Mode, 5> kModes = {{{"single", single_launch},
                                         {"torchrun", torchrun_launch},
                                         {"openmpi", detail::openmpi_launch},
                                         {"pmi", detail::pmi_launch},
                                         {"slurm", detail::slurm_launch}}};

/// The first launcher whose variables are there (config-and-cli 7.1).
std::string_view found_mode() {
  if (variable("RANK") || variable("WORLD_SIZE")) {
    return "torchrun";
  }
  if (variable("OMPI_COMM_WORLD_SIZE")) {
    return "openmpi";
  }
  // srun --mpi=pmi2 sets PMI_SIZE as well, but not which process of its machine this is.
  if (variable("PMI_SIZE") && (variable("MPI_LOCALRANKID") || !detail::in_slurm_step())) {
    return "pmi";
  }
  const char* tasks = variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  return detail::in_slurm_step() && number_of(tasks) > 1 ? "slurm" : "single";
}

/// The path of "file:PATH".
std::string rendezvous_file(const std::string& text) {
  check(text.starts_with(kFilePrefix) && text.size() > kFilePrefix.size(),
        ErrorKind::usage,
        "bad-rendezvous",
        "--rendezvous '{}': give file:PATH, a file on a disk that all machines share",
        text);
  return text.substr(kFilePrefix.size());
}

/// Where rank 0 is found: by the command line, then, on several machines, by MASTER_ADDR and
/// MASTER_PORT, then by what the launcher tells.
void find_rank_0(LaunchOptions& options, const LaunchFlags& flags) {
  const bool one_machine = options.local_world_size == options.world_size;
  if (!flags.rendezvous.empty()) {
    options.rendezvous_file = rendezvous_file(flags.rendezvous);
    options.address = one_machine ? "127.0.0.1" : "";
    options.port = 0;
    return;
  }
  VariableReader reader;
  if (!one_machine && variable("MASTER_ADDR")) {
    options.address = reader.text("MASTER_ADDR");
  }
  if (!one_machine && variable("MASTER_PORT")) {
    options.port = static_cast<int>(reader.number("MASTER_PORT", 1, kLargestPort));
  }
  reader.finish("set what is missing, or choose another launcher with --launch");
  options.address = flags.master_addr.empty() ? options.address : flags.master_addr;
  options.port = flags.master_port == 0 ? options.port : flags.master_port;
  check(
      options.world_size == 1 || (!options.address.empty() && options.port != 0),
      ErrorKind::environment,
      "launch-env",
      "{}, on several machines, and nothing says {}\n  fix   --master-addr HOST and --master-port "
      "PORT (or MASTER_ADDR and MASTER_PORT), or --rendezvous file:PATH on a shared disk",
      options.origin,
      options.address.empty() ? "on which one rank 0 runs" : "on which port rank 0 listens");
}

}  // namespace

LaunchOptions detect_launch(const LaunchFlags& flags) {
  if (is_spawned() && variable("RANK")) {
    return torchrun_launch();
  }
  const std::string_view word = flags.mode == "auto" ? found_mode() : flags.mode;
  const auto* const mode = std::ranges::find(kModes, word, &Mode::word);
  check(mode != kModes.end(),
        ErrorKind::usage,
        "bad-launch",
        "--launch '{}': give auto, single, torchrun, openmpi, pmi or slurm",
        flags.mode);
  LaunchOptions options = mode->launch();
  const bool placed = options.mode == "single" || options.mode == "torchrun";
  check(
      !placed || (flags.master_addr.empty() && flags.master_port == 0 && flags.rendezvous.empty()),
      ErrorKind::usage,
      "launch-flag",
      "--master-addr, --master-port and --rendezvous are for processes of mpirun, mpiexec and "
      "srun, and this is launch mode {}\n  fix   drop them",
      options.mode);
  if (!placed) {
    find_rank_0(options, flags);
  }
  return options;
}

}  // namespace colossal
