// In which units do threads share the elements of shards? In pieces of one parameter: fixed
// borders, so that results do not depend on the number of threads.
#pragma once

#include "memory/chunk_store.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace colossal::detail {

inline constexpr std::int64_t kPiece = 16384;  ///< most elements of a piece

/// Elements [at, at + count) of a shard, all of one parameter; no padding.
struct Piece {
  int shard = 0;  ///< index in the span that was cut
  int param = 0;
  std::int64_t at = 0;
  std::int64_t count = 0;
  std::int64_t element = 0;  ///< number of the first one in the parameter's local tensor
  std::int64_t before = 0;   ///< elements of all pieces before it
};

/// Cuts all segments of the shards, in their order.
[[nodiscard]] std::vector<Piece> cut(std::span<const FlatShard> shards);

/// Calls `work` once for the index of each piece, in several threads if there are elements enough.
void for_each_piece(std::span<const Piece> pieces, const std::function<void(std::size_t)>& work);

}  // namespace colossal::detail
