// How is one norm taken over many flat shards? Fixed pieces in a fixed order: equal for any number
// of threads.
#include "optim/norms.hpp"

#include "optim/detail/copies.hpp"
#include "optim/detail/cuda/squares.hpp"
#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/tiles.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace colossal {
namespace {

double squares(const at::Tensor& grad, const detail::Piece& piece) {
  if (grad.scalar_type() == at::kDouble) {
    return detail::sum_of_squares(grad.const_data_ptr<double>() + piece.at, piece.count);
  }
  const detail::ShardArrays arrays{
      .master = {}, .grad = detail::array_of(grad, at::kFloat), .working = {}, .states = {}};
  const detail::Carrier carrier{.arrays = arrays, .access = {.reads_states = false}};
  detail::TileBuffers<float> buffers;
  double sum = 0;
  for (std::int64_t done = 0; done < piece.count; done += detail::kTile) {
    const std::int64_t count = std::min(detail::kTile, piece.count - done);
    sum += detail::sum_of_squares(buffers.load(carrier, piece.at + done, count).grad, count);
  }
  return sum;
}

/// Pieces of the shards whose gradients a CPU can read.
std::vector<detail::Piece> pieces_of_host(std::span<const FlatShard> shards) {
  std::vector<detail::Piece> pieces = detail::cut(shards);
  std::erase_if(pieces, [&](const detail::Piece& piece) {
    return shards[static_cast<std::size_t>(piece.shard)].grad.is_cuda();
  });
  return pieces;
}

/// The sum of measure_on_gpu() over all parameters, for which is waited.
double squares_on_gpu(std::span<const FlatShard> shards,
                      const detail::Copies& copies,
                      const at::Tensor& measured) {
  if (!measured.defined()) {
    return 0;
  }
  std::vector<double> divisors;
  for (const FlatShard& shard : shards) {
    const std::size_t count = shard.grad.is_cuda() ? shard.segments.size() : 0;
    for (const Segment& segment : std::span(shard.segments).first(count)) {
      divisors.push_back(copies.of(segment.param, shard.shard_axes));
    }
  }
  const at::Tensor here = measured.cpu();
  const auto* const values = here.const_data_ptr<double>();
  double sum = 0;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    sum += values[i] / divisors[i];
  }
  return sum;
}

/// Sum over all pieces, each divided by the number of its copies, in their order whatever the
/// number of threads.
double squares(std::span<const FlatShard> shards, const detail::Copies& copies) {
  const std::vector<detail::Piece> pieces = pieces_of_host(shards);
  const auto shard_of = [&](const detail::Piece& piece) -> const FlatShard& {
    return shards[static_cast<std::size_t>(piece.shard)];
  };
  std::vector<double> partial(pieces.size());
  detail::for_each_piece(
      pieces, [&](std::size_t i) { partial[i] = squares(shard_of(pieces[i]).grad, pieces[i]); });
  double sum = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sum += partial[i] / copies.of(pieces[i].param, shard_of(pieces[i]).shard_axes);
  }
  return sum;
}

}  // namespace

at::Tensor measure_on_gpu(std::span<const FlatShard> shards) {
  std::vector<at::Tensor> parts;
  for (const FlatShard& shard : shards) {
    const std::size_t count = shard.grad.is_cuda() ? shard.segments.size() : 0;
    for (const Segment& segment : std::span(shard.segments).first(count)) {
      parts.push_back(shard.grad.narrow(0, segment.offset, segment.end - segment.begin));
    }
  }
  return parts.empty() ? at::Tensor() : detail::cuda::squares_of(parts);
}

double global_grad_norm(std::span<const FlatShard> shards,
                        std::span<Parameter* const> parameters,
                        const ParallelContext& context,
                        const at::Tensor& measured) {
  AxisSet shard_axes;
  for (const FlatShard& shard : shards) {
    shard_axes |= shard.shard_axes;
  }
  const detail::Copies copies(parameters, shard_axes, context.mesh());
  const double on_gpu =
      squares_on_gpu(shards, copies, measured.defined() ? measured : measure_on_gpu(shards));
  at::Tensor sum = at::full({1}, squares(shards, copies) + on_gpu, at::kDouble);
  context.comm(copies.group() | axes({Axis::pp})).all_reduce(sum).wait();
  return std::sqrt(sum.item<double>());
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace colossal
