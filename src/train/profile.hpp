// What does a recording of some steps tell? A picture for trace viewers and a table of phases.
#pragma once

#include "core/trace.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colossal {

/// The recording in Chrome's trace event format, as Perfetto and chrome://tracing open it: process
/// = rank; one track for each thread, for collectives and for memory. Complete events nest on every
/// track. Times are microseconds of a clock that ranks of one host share.
[[nodiscard]] std::string to_chrome_trace(const trace::Recording& recording, int rank);

/// Seconds that the training thread spent in each phase itself, without what phases inside it took.
struct PhaseTimes {
  static constexpr std::size_t kPhases = static_cast<std::size_t>(trace::Phase::communication);
  std::array<double, kPhases> seconds{};  ///< by trace::Phase, up to hooks
  double total = 0;                       ///< of the recording
  double communication = 0;               ///< some collective was under way
  std::int64_t lowest_memory = 0;         ///< resident bytes; 0 if not sampled
  std::int64_t highest_memory = 0;
};

/// Sums up a recording.
[[nodiscard]] PhaseTimes phase_times(const trace::Recording& recording);

/// One line of text, and back. Errors (parse): internal "profile-text".
[[nodiscard]] std::string to_text(const PhaseTimes& times);
[[nodiscard]] PhaseTimes parse_phase_times(const std::string& text);

/// Table of the phases of `steps` steps, mean over ranks, with the rank that took longest; without
/// a final newline. `ranks`: at least one.
[[nodiscard]] std::string phase_table(const std::vector<PhaseTimes>& ranks,
                                      std::int64_t first_step,
                                      std::int64_t steps);

}  // namespace colossal
