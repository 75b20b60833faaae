// Which arrays does a shard have for kernels?
#include "optim/detail/tiles.hpp"

#include "core/error.hpp"

namespace colossal::detail {
namespace {

const at::Tensor& state_of(const FlatShard& shard, std::string_view name) {
  const auto found = shard.state.find(name);
  check(found != shard.state.end() && found->second.numel() == shard.master.numel(),
        ErrorKind::internal,
        "optimizer-state",
        "a shard of {} elements has no state '{}' of its length",
        shard.master.numel(),
        name);
  return found->second;
}

}  // namespace

Array array_of(const at::Tensor& tensor, at::ScalarType master) {
  if (!tensor.defined()) {
    return {};
  }
  const at::ScalarType dtype = tensor.scalar_type();
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  check(dtype == master || half,
        ErrorKind::internal,
        "optimizer-dtype",
        "an array of a shard has type {}; masters of {} allow {}, BFloat16 and Half",
        c10::toString(dtype),
        c10::toString(master),
        c10::toString(master));
  return {.data = tensor.data_ptr(), .dtype = dtype};
}

std::vector<ShardArrays> arrays_of(std::span<const FlatShard> shards,
                                   std::span<const std::string_view> states) {
  std::vector<ShardArrays> all;
  std::int64_t total = 0;
  for (const FlatShard& shard : shards) {
    total += shard.master.numel();
  }
  for (const FlatShard& shard : shards) {
    const at::ScalarType master = shard.master.scalar_type();
    ShardArrays& arrays = all.emplace_back();
    arrays.is_large = total >= kLarge;
    arrays.master = array_of(shard.master, master);
    arrays.grad = array_of(shard.grad, master);
    arrays.working = array_of(shard.working, master);
    for (std::size_t i = 0; i < states.size(); ++i) {
      arrays.states[i] = array_of(state_of(shard, states[i]), master);
    }
  }
  return all;
}

}  // namespace colossal::detail
