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
  std::int64_t device = 0;  ///< bytes of the device of each rank; 0: no limit of its own
  std::int64_t host = 0;    ///< bytes of this machine, which all ranks share; 0: not asked
  std::string device_name;  ///< "run.device_memory", or the name of a GPU
};

/// run.device_memory; else the smallest GPU that a rank would take; else, where tensors live in
/// host memory, what this machine has.
[[nodiscard]] Capacity capacity_of(const Config& config);

/// What of a plan does not fit.
struct Overrun {
  int rank = 0;              ///< which needs most
  std::int64_t missing = 0;  ///< bytes that each rank would have to save
  std::string text;  ///< "the plan needs 9.1 GiB on rank 3, and run.device_memory is 8.0 GiB"
};

/// Nothing if the plan fits: on every device, or all ranks of a machine together in its memory.
[[nodiscard]] std::optional<Overrun> overrun(const PlanReport& plan, const Capacity& capacity);

}  // namespace colossal
