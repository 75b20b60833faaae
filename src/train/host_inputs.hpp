// Where do the inputs of blocks that run again wait for backward, if not on the device?
#pragma once

#include "memory/cuda/gpu_memory.hpp"
#include "nn/block.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colossal {

/// The input of a segment, in host memory or on its way from or to there.
struct HostInput {
  struct Part {
    std::string name;
    at::Tensor host;    ///< flat
    at::Tensor device;  ///< undefined while the part is in host memory alone
    std::vector<std::int64_t> sizes;
    bool needs_grad = false;
    cuda::Copy copy;
  };
  std::vector<Part> parts;
  bool returning = false;
};

/// Moves inputs to host memory and back (train.activation_checkpoint.offload): on a GPU from and to
/// pinned pages, beside the computation, which waits for a copy where it needs it and the host
/// never; on a CPU at once. Host memory is kept for inputs of the same sizes. Main thread only.
class HostInputs {
 public:
  explicit HostInputs(at::Device device);
  ~HostInputs();
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  /// Begins to copy `input`, whose memory on the device may go after left() at the earliest.
  /// Errors: memory "host-memory".
  [[nodiscard]] HostInput park(const Activation& input);
  /// Lets go of the memory on the device: what is computed from now on comes after the copy.
  void left(HostInput& input) const;
  /// Takes memory on the device and begins to bring the input back, unless that has begun.
  void begin_return(HostInput& input);
  /// The input as leaves of a graph, for whatever is computed from now on.
  [[nodiscard]] Activation take(HostInput&& input);

 private:
  using Kind = std::pair<at::ScalarType, std::int64_t>;  // and number of elements
  struct Streams;

  [[nodiscard]] at::Tensor host_of(const at::Tensor& tensor);

  at::Device device_;
  std::unique_ptr<Streams> streams_;  // of a GPU
  std::multimap<Kind, at::Tensor> free_;
};

}  // namespace colossal
