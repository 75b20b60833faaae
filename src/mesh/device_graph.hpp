// How is the same work given to a GPU again and again by one call?
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace colossal {

/// Work of a GPU that was recorded once and runs as often as it is asked to.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Gives all of the work to the current stream of the calling thread, by one call.
  virtual void replay() = 0;
};

/// Calls `work` and keeps what it gives to the GPU `device`; nothing of that runs. Arrays are read
/// and written where they are now. Tensors that `work` makes lie in memory of the graph: those that
/// somebody still holds when it returns get new values by each replay, and must not outlive the
/// graph. `work` must have run before (kernels chosen, plans made), and may not wait for the GPU.
/// Waits for the GPU and gives back the memory that LibTorch keeps for later. Errors: internal
/// "cuda-graph" for work that cannot be recorded, "no-cuda"; those of `work`.
[[nodiscard]] std::unique_ptr<DeviceGraph> record_graph(c10::Device device,
                                                        const std::function<void()>& work);

}  // namespace colossal
