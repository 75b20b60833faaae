// Where does a run take place? Host, process times, versions: the facts of env.json.
#pragma once

#include "comm/world.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace colossal {

/// Seconds since 1970 now.
[[nodiscard]] double unix_time();

/// Seconds since this process was started by the system (resolution 10 ms); for a rank that
/// `--nproc` spawned, since its launcher was. Negative if the system does not tell.
[[nodiscard]] double seconds_since_process_start(const LaunchOptions& launch);

/// When the Slurm job of this process ends, in seconds since 1970. Errors: environment
/// "job-deadline" if SLURM_JOB_END_TIME does not say so.
[[nodiscard]] double job_end_time();

/// Seconds since 1970 as UTC time, "2026-11-28T12:00:00Z".
[[nodiscard]] std::string utc_time(std::int64_t unix_seconds);

/// UTC time now, in the same form.
[[nodiscard]] std::string utc_now();

/// The variables that change what a run does or where, those that are set.
[[nodiscard]] std::map<std::string, std::string> environment_variables();

/// The text of env.json, without a newline at its end: versions, build id, command line, host,
/// processors, selected environment variables.
[[nodiscard]] std::string environment_json(const LaunchOptions& launch,
                                           const std::vector<std::string>& arguments);

}  // namespace colossal
