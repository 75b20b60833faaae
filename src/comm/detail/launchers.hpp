// How do launchers of clusters tell a process which rank it is? One function per launcher.
#pragma once

#include "comm/world.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// More ranks than any job has: a number beyond is a mistake.
inline constexpr int kMostRanks = 1'000'000;

/// A variable of the environment, or nothing.
[[nodiscard]] std::optional<std::string> variable(const char* name);

/// Reads the variables of one launcher; all complaints come together, by finish().
class VariableReader {
 public:
  /// The value; a complaint if there is none.
  std::string text(const char* name);
  /// A whole number of this range; a complaint if it is none.
  std::int64_t number(const char* name, std::int64_t smallest, std::int64_t largest);
  /// As number(), of the first of these variables that is set.
  std::int64_t number_of(std::initializer_list<const char*> names,
                         std::int64_t smallest,
                         std::int64_t largest);
  /// Errors: environment "launch-env" listing missing and malformed variables; `advice` says what
  /// to do about missing ones.
  void finish(std::string_view advice) const;

 private:
  std::string missing_;
  std::string malformed_;
};

/// A process of mpirun of Open MPI; of mpiexec of MPICH, Intel MPI and other PMI launchers; of
/// srun. Where rank 0 listens is left open if the ranks are on several machines and nothing tells.
/// Errors: environment "launch-env".
[[nodiscard]] LaunchOptions openmpi_launch();
[[nodiscard]] LaunchOptions pmi_launch();
[[nodiscard]] LaunchOptions slurm_launch();

/// Whether srun has started this process as one of its tasks, or a batch script runs it plainly.
[[nodiscard]] bool in_slurm_step();

/// The hosts of a Slurm list such as "n[01-03,07],gpu1", in order. Errors: environment
/// "launch-env" if it is malformed or has more than a million hosts.
[[nodiscard]] std::vector<std::string> slurm_hosts(std::string_view list);

/// Tasks on each node from Slurm's "4(x2),3": {4, 4, 3}. Errors: as slurm_hosts().
[[nodiscard]] std::vector<int> slurm_tasks(std::string_view list);

/// A port that all processes of a job find alike: 20000 to 32767.
[[nodiscard]] int job_port(std::uint64_t job);

}  // namespace colossal::detail
