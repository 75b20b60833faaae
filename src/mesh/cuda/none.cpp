// What does a build without CUDA know of GPUs? That it can use none.
#include "core/error.hpp"
#include "mesh/cuda/event_timer.hpp"
#include "mesh/device.hpp"
#include "mesh/device_graph.hpp"

namespace colossal {

GpuSurvey survey_gpus() {
  return {};
}

void use_device(at::Device device) {
  check(device.is_cpu(),
        ErrorKind::internal,
        "no-cuda",
        "a build without CUDA cannot use device {}",
        device.str());
}

void allow_tf32(at::Device device) {
  use_device(device);  // a CPU has no such products
}

std::string describe_device(at::Device device) {
  return device.str();
}

void wait_for_device(at::Device device) {
  use_device(device);
}

void make_deterministic(at::Device device) {
  use_device(device);  // a CPU's results always repeat
}

std::unique_ptr<DeviceGraph> record_graph(c10::Device device,
                                          const std::function<void()>& /*work*/) {
  use_device(device);
  return nullptr;  // use_device() has thrown
}

}  // namespace colossal

namespace colossal::cuda {

std::unique_ptr<DeviceTimer> make_event_timer(at::Device device) {
  use_device(device);
  return nullptr;  // use_device() has thrown
}

}  // namespace colossal::cuda
