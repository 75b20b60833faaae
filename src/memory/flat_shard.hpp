// What do optimizers and checkpoints see of a chunk? This rank's flat part.
#pragma once

#include "mesh/layout.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace colossal {

/// What a pass over shards does with states that are not in memory.
enum class StateAccess : std::uint8_t {
  none,   ///< it does not look at them
  read,   ///< it changes nothing
  update  ///< what it changes is stored
};

/// Element range [begin, end) of a parameter's local tensor that a shard holds at [offset, offset +
/// end - begin).
struct Segment {
  int param = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t offset = 0;
};

/// What optimizers and checkpoints see of one chunk on this rank: flat, aligned, equal lengths.
struct FlatShard {
  at::Tensor master;   ///< fp32, or fp64 under fp64
  at::Tensor grad;     ///< summed over all ranks; dtype of master, or bf16 or fp16
  at::Tensor working;  ///< bf16 or fp16 copy of the master that the update writes in the same pass;
                       ///< undefined where the parameter is its own master
  std::map<std::string, at::Tensor, std::less<>>
      state;                      ///< zero at the start; dtype of master, or bf16
  std::vector<Segment> segments;  ///< in order of offset; gaps are zero padding
  AxisSet shard_axes;  ///< each rank of these holds another part; none: all hold everything
  /// For states on disk, whose tensors share one buffer with other shards: makes them hold the
  /// states of this shard, and stores them after a change. Empty where states are in memory.
  std::function<void()> bring_states = {};
  std::function<void()> keep_states = {};
};

}  // namespace colossal
