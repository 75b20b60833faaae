// Which failure does a test want to see? None unless the build sets COLOSSAL_FAULTS=ON.
#pragma once

#include <cstdint>

namespace colossal::fault {

/// "No limit" of write_limit().
inline constexpr std::int64_t kNoLimit = INT64_MAX;

/// What a fault puts into the numbers of a step; the caller carries it out.
enum class Poison : std::uint8_t { none, loss, gradient };

/// Carries out what the variable COLOSSAL_FAULT asks of this rank at this step, for example
/// "rank=2,step=5,kind=sleep:30", with attempt=N only after N restarts of the launcher: throw,
/// sleep:SECONDS, exit:CODE, kill. Kind nan
/// is a loss of NaN, kind inf an infinite gradient: both are returned. Errors: internal
/// "fault-thrown" for kind throw; usage "fault-spec" if the variable is malformed.
Poison at_step(int rank, std::int64_t step);

/// Bytes this rank may still write when kind is write-error:BYTES (the step is ignored), else
/// kNoLimit. Errors: usage "fault-spec".
[[nodiscard]] std::int64_t write_limit(int rank);

/// Waits before this rank's part of a checkpoint is whole, for the seconds of kind
/// write-sleep:SECONDS (the step is ignored). Errors: usage "fault-spec".
void pause_write(int rank);

/// Bytes this rank may still write to its file of optimizer states when kind is nvme-error:BYTES
/// (the step is ignored), else kNoLimit; the write after them fails. Errors: usage "fault-spec".
[[nodiscard]] std::int64_t nvme_limit(int rank);

}  // namespace colossal::fault
