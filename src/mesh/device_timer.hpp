// How long does work take on the device that does it? The only clock of measurements of single
// operations.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace colossal {

/// Times one stretch of work after the other: on a CPU by a clock that never jumps, on a GPU by
/// events between the kernels of the current stream, so that the host's delays do not count.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  /// The stretch begins with what the device is given from now on.
  virtual void start() = 0;
  /// Ends the stretch, waits until the device is through with it, and returns its seconds.
  [[nodiscard]] virtual double stop() = 0;
};

/// A timer of the device of this thread. Errors: internal "no-cuda" for a GPU in a build without.
[[nodiscard]] std::unique_ptr<DeviceTimer> make_device_timer(at::Device device);

}  // namespace colossal
