// How is one update carried out over all shards, wherever they are? Sweep by sweep; in between, the
// ranks add up what each knows of a layer.
#pragma once

#include "mesh/context.hpp"
#include "optim/optimizer.hpp"

#include <functional>
#include <span>

namespace colossal {

/// What is done with some shards.
using ShardCall = std::function<void(std::span<FlatShard>)>;

/// Shows all shards of this rank to the call, all at once or one after the other, each exactly once
/// and in the same order every time. A store may bring states into memory before and write them
/// back after each call, as far as the access asks for it.
using ShardVisitor = std::function<void(StateAccess, const ShardCall&)>;

/// One update of masters, states and working copies. `parameters` is indexed by Segment::param, as
/// `groups`. Communicates: after each sweep that measures one all-reduce of its sums (lamb and
/// lars: 2 doubles a parameter; adafactor: rows + columns + 1, then 1), over the axes that shard
/// parameters or shards; nothing if none does. Every contribution is divided by the number of ranks
/// that hold an equal one, so norms are those of the whole parameter whatever the layout. All ranks
/// must agree beforehand to update or to skip. Errors: those of Optimizer::sweep().
void apply_update(Optimizer& optimizer,
                  const ShardVisitor& visit,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info,
                  std::span<Parameter* const> parameters,
                  const ParallelContext& context);

}  // namespace colossal
