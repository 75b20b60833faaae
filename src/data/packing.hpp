// Which documents share a row?
#pragma once

#include "config/config.hpp"
#include "data/token_stream.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace colossal {

/// A document in a row, or a part of one that is longer than a row.
struct Piece {
  std::int64_t begin = 0;   ///< position in the stream
  std::int32_t length = 0;  ///< tokens, at most the length of a row
  bool ends = true;         ///< its last token ends the document and has no successor
};

/// Rows of whole documents (optimizers-and-recipes 7.2). Documents longer than a row are cut into
/// rows' lengths; a piece that predicts nothing (one token that ends its document) is left out.
/// pad: one piece a row, in the order of the files. greedy: first-fit decreasing, equal lengths in
/// the order of the files; O(n log n) time and about 30 bytes a piece while it is made, 16 after.
class RowPlan {
 public:
  /// `stream` must have documents. Rows are shorter than 2^31 tokens.
  RowPlan(const TokenStream& stream, Packing packing, std::int64_t sequence);
  [[nodiscard]] std::int64_t num_rows() const noexcept { return std::ssize(row_ends_); }
  /// Pieces of a row from left to right.
  [[nodiscard]] std::span<const Piece> row(std::int64_t index) const;
  /// Tokens in all rows.
  [[nodiscard]] std::int64_t num_tokens() const noexcept { return num_tokens_; }

 private:
  void pack_greedily(std::int64_t sequence);

  std::vector<Piece> pieces_;           ///< row by row
  std::vector<std::int64_t> row_ends_;  ///< end of each row in pieces_
  std::int64_t num_tokens_ = 0;
};

}  // namespace colossal
