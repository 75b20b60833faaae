// Which axes of the group leave a parameter's elements equal? Those that shard neither it nor its
// shard.
#include "optim/detail/copies.hpp"

namespace colossal::detail {

Copies::Copies(std::span<Parameter* const> parameters, const AxisSet& shard_axes, const Mesh& mesh)
    : mesh_(mesh), group_(shard_axes) {
  for (const Parameter* parameter : parameters) {
    sharded_.push_back(parameter->spec().layout.sharded());
    group_ |= sharded_.back();
  }
}

double Copies::of(int param, const AxisSet& shard_axes) const {
  return mesh_.size(group_ & ~sharded_[static_cast<std::size_t>(param)] & ~shard_axes);
}

}  // namespace colossal::detail
