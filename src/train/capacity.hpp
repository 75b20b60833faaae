// Does a plan fit where its ranks run?
#pragma once

#include "config/config.hpp"
#include "train/plan_report.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace colossal {

/// What the ranks of a run may hold.
struct Capacity {
  std::int64_t device = 0;      ///< bytes of the device of each rank; 0: no limit of its own
  std::int64_t host = 0;        ///< bytes of this machine, which all ranks share; 0: not asked
  std::int64_t host_limit = 0;  ///< gemini.host_memory: of each rank; 0: none
  std::string device_name;      ///< "run.device_memory", or the name of a GPU
  std::string device_key = {};  ///< "run.device_memory" if it says the size
  std::string budget_key = {};  ///< the key that gives gemini's gathered weights their size
  bool apart = false;  ///< devices have memory of their own, which takes none of the host's
};

/// Of the device: run.device_memory, else the smallest GPU that a rank would take. Of the host:
/// what this machine has, unless the run is for GPUs (run.device: cuda) and this machine has none.
/// A size without a GPU is that of a GPU elsewhere, unless run.device is cpu, which simulates it.
[[nodiscard]] Capacity capacity_of(const Config& config);

/// Which bytes of a rank share one memory.
enum class MemoryShare : std::uint8_t {
  device,
  host,
  both,
  budget  ///< what gemini lets gathered weights take: const_budget, or what auto has measured
};

/// Bytes of a rank that lie in this memory; of a budget what it lacks, below 0 where it has room.
[[nodiscard]] std::int64_t bytes_of(const RankBytes& rank, MemoryShare share);

/// What of a plan does not fit.
struct Overrun {
  int rank = 0;              ///< which needs most
  std::int64_t missing = 0;  ///< bytes that each rank would have to save
  std::string text;  ///< "the plan needs 9.1 GiB on rank 3, and run.device_memory is 8.0 GiB"
  MemoryShare share = MemoryShare::device;  ///< what would have to be less
  std::string key = {};                     ///< which says how much there is; empty: none does
};

/// Nothing if the plan fits: on every device, in the budgets of gathered weights, in what each rank
/// may take of the host, and all ranks of a machine together in its memory.
[[nodiscard]] std::optional<Overrun> overrun(const PlanReport& plan, const Capacity& capacity);

}  // namespace colossal
