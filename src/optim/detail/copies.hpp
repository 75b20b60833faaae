// How many ranks hold the same elements of a parameter's shard? What each adds to a global sum is
// divided by this number.
#pragma once

#include "memory/chunk_store.hpp"
#include "mesh/context.hpp"

#include <span>
#include <vector>

namespace colossal::detail {

/// Ranks that together hold every element of a stage's parameters, and how often.
class Copies {
 public:
  /// `shard_axes`: axes that shard some of the shards.
  Copies(std::span<Parameter* const> parameters, const AxisSet& shard_axes, const Mesh& mesh);

  /// Axes of the ranks among which parts of parameters lie: those of tensor layouts and shards.
  [[nodiscard]] const AxisSet& group() const noexcept { return group_; }
  /// Ranks of the group that hold the same elements of this parameter where `shard_axes` shard it.
  [[nodiscard]] double of(int param, const AxisSet& shard_axes) const;

 private:
  const Mesh& mesh_;
  std::vector<AxisSet> sharded_;  // by parameter: axes of its layout
  AxisSet group_;
};

}  // namespace colossal::detail
