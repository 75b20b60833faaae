// What of a chunk lies on the device, and how does it get there? Homes move once, between two
// steps.
#include "memory/detail/chunk.hpp"

#include <c10/core/ScalarType.h>

#include <utility>

namespace colossal::detail {
namespace {

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

std::int64_t Chunk::optimizer_bytes() const {
  return spec_.states_on_disk ? 0 : part_bytes();  // what is on disk stays there
}

/// Of master, summed gradient, and states in memory.
std::int64_t Chunk::part_bytes() const {
  std::int64_t bytes = bytes_of(shard_.master) + bytes_of(shard_.grad);
  for (const auto& [name, tensor] : shard_.state) {
    bytes += bytes_of(tensor);
  }
  return bytes;
}

HeldBytes Chunk::held() const {
  // Where tensors lie, not where the plan wants them: moves between the two may fail half-way.
  const at::Device device = shared_.context.device();
  HeldBytes held{.weights = spec_.resident && weights_.filled() ? weights_.bytes() : 0,
                 .borrowed = staging_.filled() ? staging_.bytes() : 0};
  const bool home_here = spec_.param_home == Tier::device && home_.defined();
  held.weights += home_here && home_.device() == device ? bytes_of(home_) : 0;
  held.grads = keeps_gradients_ && !lends_gradients_ ? grads_.bytes() : 0;
  if (spec_.optim_home == Tier::device && shard_.master.device() == device) {
    const bool is_weight = home_.defined() ? home_.is_same(shard_.master)
                                           : shard_.master.is_alias_of(weights_.tensor());
    held.optimizer = part_bytes() - bytes_of(shard_.grad);
    held.optimizer -= is_weight ? bytes_of(shard_.master) : 0;
    held.optimizer += working_on_device_.defined() ? bytes_of(shard_.working) : 0;
    held.grads += keeps_gradients_ ? 0 : bytes_of(shard_.grad);
  }
  return held;
}

std::int64_t Chunk::lent_bytes() const noexcept {
  return lends_gradients_ && grads_.filled() ? grads_.bytes() : 0;
}

std::int64_t Chunk::device_bytes() const {
  const HeldBytes now = held();
  return now.weights + now.grads + now.optimizer + lent_bytes();
}

std::int64_t Chunk::weight_bytes() const {
  return home_.defined() && !home_.is_same(shard_.master) ? bytes_of(home_) : 0;
}

at::Tensor Chunk::moved(const at::Tensor& from) const {
  at::Tensor to = allocate(from.scalar_type(), Tier::device);
  to.copy_(from);
  return to;
}

void Chunk::move_to_device(bool weights) {
  move_home(weights);
  shard_.grad = moved(shard_.grad);
  landed_ = at::Tensor();  // sums do not go to the host any more
  for (auto& [name, tensor] : shard_.state) {
    tensor = moved(tensor);
  }
  if (working_on_device_.defined()) {
    shard_.working = std::exchange(working_on_device_, at::Tensor());
  } else if (!weights && apart() && shard_.working.defined()) {
    // Its home stays on the host, which an update on the device cannot write: publish brings it.
    shard_.working = at::Tensor();
  }
}

/// Moves the master, and the home of the weights if it goes, too.
void Chunk::move_home(bool weights) {
  const bool is_master = home_.is_same(shard_.master);
  if (spec_.resident && home_.defined()) {
    weights_.fill(allocate_flat(weights_.bytes(), at::kByte, shared_.context.device()));
    const at::Tensor part = own_part(weights_.tensor());
    part.copy_(home_);
    shard_.master = is_master ? part : moved(shard_.master);
    shard_.working = is_master ? at::Tensor() : part;
    home_ = at::Tensor();
    return;
  }
  shard_.master = moved(shard_.master);
  if (is_master) {
    home_ = shard_.master;
  } else if (weights) {
    home_ = shard_.working = moved(home_);
  }
}

Crossing Chunk::crossing() const {
  const auto bytes = [&](at::ScalarType dtype, Tier from, Tier to) {
    return from == to ? 0 : part_numel_ * static_cast<std::int64_t>(at::elementSize(dtype));
  };
  const StoreOptions& options = shared_.options;
  const Tier home = spec_.resident ? Tier::device : spec_.param_home;
  return {.gather = bytes(options.compute, home, Tier::device),
          .reduce = bytes(options.reduce, Tier::device, spec_.optim_home),
          .publish = bytes(options.compute, spec_.optim_home, home)};
}

}  // namespace colossal::detail
