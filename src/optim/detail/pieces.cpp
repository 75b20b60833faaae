// How do threads share pieces? Each takes those that begin in its stretch of all elements.
#include "optim/detail/pieces.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

namespace colossal::detail {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements a thread takes at least

/// Appends the pieces of one segment.
void cut(std::vector<Piece>& pieces, int shard, const Segment& segment) {
  std::int64_t before = pieces.empty() ? 0 : pieces.back().before + pieces.back().count;
  for (std::int64_t element = segment.begin; element < segment.end; element += kPiece) {
    const std::int64_t count = std::min(kPiece, segment.end - element);
    pieces.push_back({.shard = shard,
                      .param = segment.param,
                      .at = segment.offset + element - segment.begin,
                      .count = count,
                      .element = element,
                      .before = before});
    before += count;
  }
}

}  // namespace

std::vector<Piece> cut(std::span<const FlatShard> shards) {
  std::vector<Piece> pieces;
  for (int shard = 0; shard < std::ssize(shards); ++shard) {
    for (const Segment& segment : shards[static_cast<std::size_t>(shard)].segments) {
      cut(pieces, shard, segment);
    }
  }
  return pieces;
}

void for_each_piece(std::span<const Piece> pieces, const std::function<void(std::size_t)>& work) {
  const std::int64_t total = pieces.empty() ? 0 : pieces.back().before + pieces.back().count;
  // One parallel region for all shards: many short ones cost more than the update of a small model.
  at::parallel_for(0, total, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto first = std::ranges::lower_bound(pieces, begin, {}, &Piece::before);
    for (auto i = static_cast<std::size_t>(first - pieces.begin());
         i < pieces.size() && pieces[i].before < end;
         ++i) {
      work(i);
    }
  });
}

}  // namespace colossal::detail
