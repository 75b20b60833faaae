// How is time measured on a GPU? By events that the device itself stamps.
#pragma once

#include "mesh/device_timer.hpp"

namespace colossal::cuda {

/// As make_device_timer() of a GPU: the current stream of the calling thread is measured.
[[nodiscard]] std::unique_ptr<DeviceTimer> make_event_timer(at::Device device);

}  // namespace colossal::cuda
