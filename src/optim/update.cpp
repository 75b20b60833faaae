// How do the squares of a layer become those of the whole parameter? Divided by the number of equal
// copies, then summed over all ranks that hold parts.
#include "optim/update.hpp"

#include "optim/detail/copies.hpp"

#include <ATen/ops/zeros.h>

#include <map>

namespace colossal {
namespace {

/// Squares of this rank's parts by the axes that shard them: how often a part is held depends on
/// these.
using LocalSums = std::map<unsigned long, at::Tensor>;

/// Calls `call` for each run of shards that the same axes shard.
void for_each_run(std::span<FlatShard> shards, const ShardCall& call) {
  for (std::size_t begin = 0; begin < shards.size();) {
    std::size_t end = begin + 1;
    while (end < shards.size() && shards[end].shard_axes == shards[begin].shard_axes) {
      ++end;
    }
    call(shards.subspan(begin, end - begin));
    begin = end;
  }
}

at::Tensor& sums_of(LocalSums& local,
                    const AxisSet& shard_axes,
                    std::span<Parameter* const> parameters) {
  at::Tensor& sums = local[shard_axes.to_ulong()];
  if (!sums.defined()) {
    sums = at::zeros({2, std::ssize(parameters)}, at::kDouble);
  }
  return sums;
}

at::Tensor add_up(const LocalSums& local,
                  std::span<Parameter* const> parameters,
                  const ParallelContext& context) {
  AxisSet shard_axes;
  for (const auto& [axes, sums] : local) {
    shard_axes |= AxisSet(axes);
  }
  const detail::Copies copies(parameters, shard_axes, context.mesh());
  at::Tensor total = at::zeros({2, std::ssize(parameters)}, at::kDouble);
  auto* const out = total.data_ptr<double>();
  const std::int64_t num_params = std::ssize(parameters);
  for (const auto& [axes, sums] : local) {
    const auto* const in = sums.const_data_ptr<double>();
    for (std::int64_t p = 0; p < num_params; ++p) {
      const double divisor = copies.of(static_cast<int>(p), AxisSet(axes));
      out[p] += in[p] / divisor;
      out[num_params + p] += in[num_params + p] / divisor;
    }
  }
  context.comm(copies.group()).all_reduce(total).wait();
  return total;
}

}  // namespace

void apply_update(const Optimizer& optimizer,
                  const ShardVisitor& visit,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info,
                  std::span<Parameter* const> parameters,
                  const ParallelContext& context) {
  at::Tensor total;
  for (int index = 0; index < optimizer.sweeps(); ++index) {
    const bool measures = index + 1 < optimizer.sweeps();
    LocalSums local;
    const ShardCall sweep = [&](std::span<FlatShard> run) {
      at::Tensor& sums = measures ? sums_of(local, run.front().shard_axes, parameters) : total;
      optimizer.sweep(index, run, groups, info, sums);
    };
    visit(optimizer.access(index),
          [&](std::span<FlatShard> shards) { for_each_run(shards, sweep); });
    if (measures) {
      total = add_up(local, parameters, context);
    }
  }
}

}  // namespace colossal
