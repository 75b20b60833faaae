// Which of several kernels for the same work should run?
#pragma once

#include <functional>

namespace colossal::kernels::cuda {

/// The number of the fastest of `count` ways to do the same work, -1 if none runs. `run(i)` starts
/// way i on the current stream and says whether it could. Each is timed over a few calls; of long
/// ones, those close to the best are then timed in turn on a card that is busy, since a card at its
/// limit of power is slowed by what a way consumes. The device is waited for, half a second at most
/// beyond the first calls.
[[nodiscard]] int fastest(int count, const std::function<bool(int)>& run);

}  // namespace colossal::kernels::cuda
