// How long does work take on the device that does it?
#include "mesh/device_timer.hpp"

#include "mesh/cuda/event_timer.hpp"

#include <chrono>

namespace colossal {
namespace {

/// A CPU has done its work when the call returns.
class HostTimer : public DeviceTimer {
 public:
  void start() override { start_ = Clock::now(); }
  [[nodiscard]] double stop() override {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

std::unique_ptr<DeviceTimer> make_device_timer(at::Device device) {
  if (device.is_cuda()) {
    return cuda::make_event_timer(device);
  }
  return std::make_unique<HostTimer>();
}

}  // namespace colossal
