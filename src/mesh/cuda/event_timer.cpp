// How is time measured on a GPU?
#include "mesh/cuda/event_timer.hpp"

#include "core/error.hpp"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace colossal::cuda {
namespace {

void require(cudaError_t error, const char* action) {
  check(error == cudaSuccess,
        ErrorKind::internal,
        "cuda-launch",
        "the GPU cannot {}: {}",
        action,
        cudaGetErrorString(error));
}

/// One event of the CUDA runtime.
class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "make an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class EventTimer : public DeviceTimer {
 public:
  explicit EventTimer(at::Device device) : device_(device) {}

  void start() override { record(start_); }

  [[nodiscard]] double stop() override {
    record(stop_);
    require(cudaEventSynchronize(stop_.get()), "finish the measured work");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "compare two events");
    return static_cast<double>(milliseconds) / 1000;
  }

 private:
  void record(const Event& event) const {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
    require(cudaEventRecord(event.get(), stream.stream()), "record an event");
  }

  at::Device device_;
  Event start_;
  Event stop_;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_event_timer(at::Device device) {
  return std::make_unique<EventTimer>(device);
}

}  // namespace colossal::cuda
