// How is one norm taken over many flat shards? Fixed pieces in a fixed order: equal for any number
// of threads.
#include "optim/norms.hpp"

#include "mesh/dtype.hpp"
#include "optim/detail/copies.hpp"
#include "optim/detail/cuda/sweeps.hpp"
#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/tiles.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
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

/// Squares of the gradients of a shard in the memory of a GPU: [segments, 2], of which column 1
/// counts.
at::Tensor squares_on_gpu(const FlatShard& shard) {
  const at::ScalarType wide = wide_dtype(shard.grad.scalar_type());
  const detail::ShardArrays arrays{
      .master = {}, .grad = detail::array_of(shard.grad, wide), .working = {}, .states = {}};
  std::vector<detail::cuda::Slice> slices;
  for (const Segment& segment : shard.segments) {
    slices.push_back({.at = segment.offset, .count = segment.end - segment.begin});
  }
  at::Tensor out = at::empty({std::ssize(slices), 2}, shard.grad.options().dtype(at::kDouble));
  detail::cuda::squares({arrays, wide, slices, out});
  return out;
}

/// The same sum over shards of a GPU, for which is waited once.
double squares_on_gpu(std::span<const FlatShard> shards, const detail::Copies& copies) {
  std::vector<at::Tensor> measured;
  std::vector<double> divisors;
  for (const FlatShard& shard : shards) {
    if (!shard.grad.is_cuda()) {
      continue;
    }
    measured.push_back(squares_on_gpu(shard));
    for (const Segment& segment : shard.segments) {
      divisors.push_back(copies.of(segment.param, shard.shard_axes));
    }
  }
  if (measured.empty()) {
    return 0;
  }
  const at::Tensor here = at::cat(measured).cpu();
  const auto* const values = here.const_data_ptr<double>();
  double sum = 0;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    sum += values[2 * i + 1] / divisors[i];
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

double global_grad_norm(std::span<const FlatShard> shards,
                        std::span<Parameter* const> parameters,
                        const ParallelContext& context) {
  AxisSet shard_axes;
  for (const FlatShard& shard : shards) {
    shard_axes |= shard.shard_axes;
  }
  const detail::Copies copies(parameters, shard_axes, context.mesh());
  at::Tensor sum =
      at::full({1}, squares(shards, copies) + squares_on_gpu(shards, copies), at::kDouble);
  context.comm(copies.group() | axes({Axis::pp})).all_reduce(sum).wait();
  return std::sqrt(sum.item<double>());
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace colossal
