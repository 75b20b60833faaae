// How does an input leave the device and come back? By one copy a direction, each in time for what
// follows.
#include "train/host_inputs.hpp"

#include "memory/host_memory.hpp"

#include <ATen/ops/empty.h>

#include <utility>

namespace colossal {

struct HostInputs::Streams {
  explicit Streams(at::Device device) : down(device), up(device) {}
  cuda::CopyStream down;  // to the host
  cuda::CopyStream up;
};

HostInputs::HostInputs(at::Device device)
    : device_(device), streams_(device.is_cuda() ? std::make_unique<Streams>(device) : nullptr) {}

HostInputs::~HostInputs() = default;

at::Tensor HostInputs::host_of(const at::Tensor& tensor) {
  const Kind kind(tensor.scalar_type(), tensor.numel());
  if (const auto fitting = free_.find(kind); fitting != free_.end()) {
    return std::move(free_.extract(fitting).mapped());
  }
  free_.clear();  // of another batch
  return host_empty(
      kind.second, kind.first, streams_ == nullptr ? HostPages::plain : HostPages::pinned);
}

HostInput HostInputs::park(const Activation& input) {
  HostInput parked;
  for (const auto& [name, tensor] : input.tensors()) {
    HostInput::Part& part =
        parked.parts.emplace_back(HostInput::Part{.name = name,
                                                  .host = host_of(tensor),
                                                  .device = tensor.detach(),
                                                  .sizes = tensor.sizes().vec(),
                                                  .needs_grad = tensor.requires_grad(),
                                                  .copy = {}});
    const at::Tensor to = part.host.view(part.sizes);
    if (streams_ == nullptr) {
      to.copy_(part.device);
    } else {
      part.copy = streams_->down.copy(to, part.device);
    }
  }
  return parked;
}

void HostInputs::left(HostInput& input) const {
  for (HostInput::Part& part : input.parts) {
    part.copy.join();
    part.device.reset();
  }
}

void HostInputs::begin_return(HostInput& input) {
  if (std::exchange(input.returning, true)) {
    return;
  }
  for (HostInput::Part& part : input.parts) {
    const at::Tensor from = part.host.view(part.sizes);
    part.device = at::empty(part.sizes, from.options().device(device_));
    if (streams_ == nullptr) {
      part.device.copy_(from);
    } else {
      part.copy = streams_->up.copy(part.device, from);
    }
  }
}

Activation HostInputs::take(HostInput&& input) {
  HostInput back = std::move(input);
  begin_return(back);
  Activation leaves;
  for (HostInput::Part& part : back.parts) {
    part.copy.join();
    free_.emplace(Kind(part.host.scalar_type(), part.host.numel()), std::move(part.host));
    part.device.requires_grad_(part.needs_grad);
    leaves.set(part.name, std::move(part.device));
  }
  return leaves;
}

}  // namespace colossal
