// What does a run say that has no memory left? Who asked for what, what the plan expected, and what
// would need less.
#pragma once

#include "comm/comm.hpp"
#include "config/config.hpp"
#include "core/error.hpp"
#include "memory/device_memory.hpp"
#include "memory/held_bytes.hpp"
#include "train/capacity.hpp"
#include "train/plan_report.hpp"

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace colossal {

/// Where a run was when its device refused: rank, and the step under way (0: none has begun).
struct RefusedRun {
  int rank = 0;
  std::int64_t step = 0;
  std::int64_t persistent = 0;         ///< bytes of tensors when the first step began
  std::int64_t budget_missing = 0;     ///< StoreCounters::missing_bytes
  std::optional<HeldBytes> held = {};  ///< by the store, as the error has left it; unset: none yet
};

/// The report of config-and-cli 6.3 as memory "out-of-memory": what a rank asked for and where,
/// what it and a GPU's allocator hold, that beside the estimate, and the three cheapest changes.
[[nodiscard]] Error out_of_memory(const Refusal& refusal,
                                  const Config& config,
                                  const RefusedRun& where);

/// What memory "budget-too-small" says of a run: by how much, the estimate and the cheapest
/// changes.
[[nodiscard]] Error budget_too_small(const Error& error,
                                     const Config& config,
                                     const RefusedRun& where);

/// One of these two, if `error` says that the device refused or that a budget is too small; empty
/// for every other error. Lifts the limit of the device: what is left to do must not fail for it.
[[nodiscard]] std::optional<Error> memory_report(const std::exception& error,
                                                 const Config& config,
                                                 const RefusedRun& where);

/// What a run took at most, over all its ranks, beside what its plan said.
struct MemorySummary {
  std::int64_t device_peak = 0;   ///< bytes of tensors
  std::int64_t device_limit = 0;  ///< run.device_memory; 0: none
  std::int64_t host_peak = 0;
  std::int64_t gathered_peak = 0;
  std::int64_t nvme_peak = 0;
  std::int64_t planned = 0;  ///< device bytes of the rank that needs most
  /// The plan's error relative to the peak: 0.05 means 5 % too much.
  [[nodiscard]] double plan_error() const;
};

/// The peaks of this process's gauges, over all ranks, beside the plan's bytes for a device of the
/// size that is there. Collective over `world`.
[[nodiscard]] MemorySummary measure_memory(const Config& config, const Comm& world);

/// Refuses a run of placement auto whose plan lacks so much of what it may use of the device that
/// is there (by more than kPlanError of it) that its first step would surely end with this error. A
/// function of configuration and device: ranks on devices of one size find the same. Errors: memory
/// "budget-too-small", which memory_report() completes.
void refuse_certain_lack(const Config& config, int rank);

/// Warns "memory-over" if the plan needs more than there is: an estimate is no measurement, so the
/// run may pass nevertheless.
void warn_if_over(const PlanReport& plan, const Config& config);

/// Refuses what warn_if_over() warns of, with the cheapest changes. Errors: config "memory-over",
/// naming the key that says how much there is, if one does.
void refuse_if_over(const PlanReport& plan, const Config& config);

/// "memory    peak 412.3 MiB of tensors a rank, planned 405.0 MiB (-1.8%)", with the other kinds if
/// they were used.
[[nodiscard]] std::string to_text(const MemorySummary& memory);

}  // namespace colossal
