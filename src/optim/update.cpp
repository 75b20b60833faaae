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

at::Tensor& sums_of(LocalSums& local, const AxisSet& shard_axes, std::int64_t num_sums) {
  at::Tensor& sums = local[shard_axes.to_ulong()];
  if (!sums.defined()) {
    sums = at::zeros({num_sums}, at::kDouble);
  }
  return sums;
}

/// `borders`: where the sums of each parameter begin.
at::Tensor add_up(const LocalSums& local,
                  const std::vector<std::int64_t>& borders,
                  std::span<Parameter* const> parameters,
                  const ParallelContext& context) {
  AxisSet shard_axes;
  for (const auto& [axes, sums] : local) {
    shard_axes |= AxisSet(axes);
  }
  const detail::Copies copies(parameters, shard_axes, context.mesh());
  at::Tensor total = at::zeros({borders.back()}, at::kDouble);
  for (const auto& [axes, sums] : local) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const double divisor = copies.of(static_cast<int>(p), AxisSet(axes));
      const std::int64_t count = borders[p + 1] - borders[p];
      total.narrow(0, borders[p], count).add_(sums.narrow(0, borders[p], count).div(divisor));
    }
  }
  context.comm(copies.group()).all_reduce(total).wait();
  return total;
}

}  // namespace

void apply_update(Optimizer& optimizer,
                  const ShardVisitor& visit,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info,
                  std::span<Parameter* const> parameters,
                  const ParallelContext& context) {
  at::Tensor total;
  for (int index = 0; index < optimizer.sweeps(); ++index) {
    const bool measures = index + 1 < optimizer.sweeps();
    const std::vector<std::int64_t> borders =
        measures ? optimizer.sum_borders(index, std::ssize(parameters))
                 : std::vector<std::int64_t>{};
    LocalSums local;
    const ShardCall sweep = [&](std::span<FlatShard> run) {
      at::Tensor& sums = measures ? sums_of(local, run.front().shard_axes, borders.back()) : total;
      optimizer.sweep(index, run, groups, info, sums);
    };
    visit(optimizer.access(index),
          [&](std::span<FlatShard> shards) { for_each_run(shards, sweep); });
    if (measures) {
      total = add_up(local, borders, parameters, context);
      optimizer.take_sums(index, info, total);
    }
  }
}

}  // namespace colossal
