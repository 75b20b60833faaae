// Which variables do mpirun, mpiexec and srun set, and what follows from them?
#include "comm/detail/launchers.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unistd.h>

namespace colossal::detail {
namespace {

/// Identifies a job on one machine: its ranks are children of one process, or of one group.
std::uint64_t parent_group() {
  return static_cast<std::uint64_t>(::getpgid(::getppid()));
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) {
    hash = splitmix64(hash ^ static_cast<unsigned char>(c));
  }
  return hash;
}

/// Of Open MPI: its name of the job, which is the same on all machines.
std::optional<std::string> openmpi_job() {
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}) {
    if (auto value = variable(name)) {
      return value;
    }
  }
  return std::nullopt;
}

void place(LaunchOptions& options, VariableReader& reader, std::int64_t size, const char* rank) {
  options.world_size = static_cast<int>(size);
  options.rank = static_cast<int>(reader.number(rank, 0, size - 1));
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): never set here
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string VariableReader::text(const char* name) {
  const auto value = variable(name);
  if (!value) {
    missing_ += missing_.empty() ? name : std::string(", ") + name;
  }
  return value.value_or("");
}

std::int64_t VariableReader::number(const char* name, std::int64_t smallest, std::int64_t largest) {
  const std::string value = text(name);
  std::int64_t parsed = smallest;
  const char* end = value.data() + value.size();
  const auto [stop, failure] = std::from_chars(value.data(), end, parsed);
  const bool good =
      failure == std::errc() && stop == end && parsed >= smallest && parsed <= largest;
  if (variable(name) && !good) {
    malformed_ += fmt::format("{}{}='{}' (a whole number from {} to {})",
                              malformed_.empty() ? "" : ", ",
                              name,
                              value,
                              smallest,
                              largest);
  }
  return good ? parsed : smallest;
}

std::int64_t VariableReader::number_of(std::initializer_list<const char*> names,
                                       std::int64_t smallest,
                                       std::int64_t largest) {
  const auto* const set =
      std::ranges::find_if(names, [](const char* name) { return variable(name).has_value(); });
  return number(set == names.end() ? *names.begin() : *set, smallest, largest);
}

void VariableReader::finish(std::string_view advice) const {
  check(missing_.empty(),
        ErrorKind::environment,
        "launch-env",
        "the launcher's environment is incomplete: {} not set\n  fix   {}",
        missing_,
        advice);
  check(malformed_.empty(),
        ErrorKind::environment,
        "launch-env",
        "the launcher's environment is wrong: {}\n  fix   {}",
        malformed_,
        advice);
}

int job_port(std::uint64_t job) {
  constexpr std::uint64_t kFirst = 20000;
  constexpr std::uint64_t kCount = 12768;  // up to the ports that Linux gives to connections
  return static_cast<int>(kFirst + job % kCount);
}

LaunchOptions openmpi_launch() {
  LaunchOptions options;
  VariableReader reader;
  const std::int64_t size = reader.number("OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  place(options, reader, size, "OMPI_COMM_WORLD_RANK");
  options.local_world_size = static_cast<int>(reader.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, size));
  options.local_rank = static_cast<int>(
      reader.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, options.local_world_size - 1));
  reader.finish("start with mpirun of Open MPI, or choose another launcher with --launch");
  options.mode = "openmpi";
  options.origin = fmt::format("OMPI_COMM_WORLD_SIZE={} set by mpirun", size);
  const std::optional<std::string> job = openmpi_job();
  const bool one_machine = options.local_world_size == options.world_size;
  options.job = "openmpi " + job.value_or("");
  options.address = one_machine ? "127.0.0.1" : "";
  options.port = job ? job_port(hash_of(*job)) : one_machine ? job_port(parent_group()) : 0;
  return options;
}

LaunchOptions pmi_launch() {
  LaunchOptions options;
  VariableReader reader;
  const std::int64_t size = reader.number("PMI_SIZE", 1, kMostRanks);
  place(options, reader, size, "PMI_RANK");
  options.local_world_size = static_cast<int>(reader.number("MPI_LOCALNRANKS", 1, size));
  options.local_rank =
      static_cast<int>(reader.number("MPI_LOCALRANKID", 0, options.local_world_size - 1));
  reader.finish(
      "start with mpiexec of MPICH or Intel MPI, or choose another launcher with --launch");
  options.mode = "pmi";
  options.job = "pmi " + variable("PMI_JOBID").value_or("");
  options.origin = fmt::format("PMI_SIZE={} set by mpiexec", size);
  const bool one_machine = options.local_world_size == options.world_size;
  options.address = one_machine ? "127.0.0.1" : "";
  options.port = one_machine ? job_port(parent_group()) : 0;
  return options;
}

}  // namespace colossal::detail
