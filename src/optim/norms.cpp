// How is one norm taken over many flat shards? Fixed blocks in a fixed order: equal for any number
// of threads.
#include "optim/norms.hpp"

#include "optim/detail/flat_kernels.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace colossal {
namespace {

constexpr std::int64_t kBlock = 16384;  // elements of one partial sum

/// Axes other than pp on which ranks of `group` hold equal copies of this parameter.
AxisSet copy_axes(const ParamSpec& spec, const AxisSet& group) {
  return group & ~spec.layout.sharded() & ~axes({Axis::pp});
}

template <class T>
double squares(const T* values, std::int64_t count) {
  std::vector<double> partial(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  at::parallel_for(0, std::ssize(partial), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kBlock;
      partial[static_cast<std::size_t>(block)] =
          detail::sum_of_squares(values + first, std::min(kBlock, count - first));
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

double squares(const at::Tensor& grad, std::int64_t begin, std::int64_t end) {
  if (grad.scalar_type() == at::kDouble) {
    return squares(grad.const_data_ptr<double>() + begin, end - begin);
  }
  return squares(grad.const_data_ptr<float>() + begin, end - begin);
}

/// Squares of one shard, each parameter's divided by its number of copies; stretches of equal
/// copies in one go. Padding is zero and goes with what stands before it.
double shard_squares(const FlatShard& shard, std::span<const double> copies) {
  double sum = 0;
  for (std::size_t i = 0; i < shard.segments.size();) {
    const double divisor = copies[static_cast<std::size_t>(shard.segments[i].param)];
    const std::int64_t begin = shard.segments[i].offset;
    while (i < shard.segments.size() &&
           copies[static_cast<std::size_t>(shard.segments[i].param)] == divisor) {
      ++i;
    }
    const std::int64_t end =
        i < shard.segments.size() ? shard.segments[i].offset : shard.grad.numel();
    sum += squares(shard.grad, begin, end) / divisor;
  }
  return sum;
}

}  // namespace

double global_grad_norm(std::span<const FlatShard> shards,
                        std::span<Parameter* const> parameters,
                        const ParallelContext& context) {
  AxisSet group = axes({Axis::pp});
  for (const Parameter* parameter : parameters) {
    group |= parameter->spec().layout.sharded();
  }
  std::vector<double> copies;
  for (const Parameter* parameter : parameters) {
    copies.push_back(context.mesh().size(copy_axes(parameter->spec(), group)));
  }
  double sum = 0;
  for (const FlatShard& shard : shards) {
    sum += shard_squares(shard, copies);
  }
  if (context.mesh().size(group) > 1) {
    at::Tensor total = at::full({1}, sum, at::kDouble);
    context.comm(group).all_reduce(total).wait();
    sum = total.item<double>();
  }
  return std::sqrt(sum);
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace colossal
