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

constexpr std::int64_t kBlock = 16384;   // elements of one partial sum
constexpr std::int64_t kSerial = 65536;  // elements below which other threads are not worth waking

/// Axes other than pp on which ranks of `group` hold equal copies of this parameter.
AxisSet copy_axes(const ParamSpec& spec, const AxisSet& group) {
  return group & ~spec.layout.sharded() & ~axes({Axis::pp});
}

/// Elements [begin, begin + count) of a shard's gradient, held equal by `copies` ranks.
struct Piece {
  const at::Tensor* grad = nullptr;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  double copies = 1;
};

/// Cuts one shard into pieces of at most kBlock elements and equal copies. Padding is zero and goes
/// with what stands before it.
void add_pieces(std::vector<Piece>& pieces,
                const FlatShard& shard,
                std::span<const double> copies) {  // by parameter
  for (std::size_t i = 0; i < shard.segments.size();) {
    const double divisor = copies[static_cast<std::size_t>(shard.segments[i].param)];
    std::int64_t begin = shard.segments[i].offset;
    while (i < shard.segments.size() &&
           copies[static_cast<std::size_t>(shard.segments[i].param)] == divisor) {
      ++i;
    }
    const std::int64_t end =
        i < shard.segments.size() ? shard.segments[i].offset : shard.grad.numel();
    for (; begin < end; begin += kBlock) {
      pieces.push_back({&shard.grad, begin, std::min(kBlock, end - begin), divisor});
    }
  }
}

double squares(const Piece& piece) {
  const double sum =
      piece.grad->scalar_type() == at::kDouble
          ? detail::sum_of_squares(piece.grad->const_data_ptr<double>() + piece.begin, piece.count)
          : detail::sum_of_squares(piece.grad->const_data_ptr<float>() + piece.begin, piece.count);
  return sum / piece.copies;
}

/// Sum over all pieces, in their order whatever the number of threads.
double squares(const std::vector<Piece>& pieces) {
  std::vector<double> partial(pieces.size());
  std::int64_t num_elements = 0;
  for (const Piece& piece : pieces) {
    num_elements += piece.count;
  }
  const std::int64_t grain = num_elements < kSerial ? std::ssize(pieces) : 1;
  at::parallel_for(0, std::ssize(pieces), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      partial[i] = squares(pieces[i]);
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace

double global_grad_norm(std::span<const FlatShard> shards,
                        std::span<Parameter* const> parameters,
                        const ParallelContext& context) {
  AxisSet group = axes({Axis::pp});
  for (const Parameter* parameter : parameters) {
    group |= parameter->spec().layout.sharded();
  }
  for (const FlatShard& shard : shards) {
    group |= shard.shard_axes;
  }
  std::vector<Piece> pieces;
  for (const FlatShard& shard : shards) {
    std::vector<double> copies;
    for (const Parameter* parameter : parameters) {
      copies.push_back(
          context.mesh().size(copy_axes(parameter->spec(), group & ~shard.shard_axes)));
    }
    add_pieces(pieces, shard, copies);
  }
  at::Tensor sum = at::full({1}, squares(pieces), at::kDouble);
  context.comm(group).all_reduce(sum).wait();
  return std::sqrt(sum.item<double>());
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace colossal
