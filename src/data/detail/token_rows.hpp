// What do all token datasets share? The batch of [n,S] tokens and labels, filled row by row.
#pragma once

#include "core/batch.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace colossal::detail {

/// One row to fill: S tokens, S labels and, if asked for, S document starts.
struct TokenRow {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> labels;
  std::span<std::int64_t> starts;
};

/// What the rows of a dataset look like.
struct RowShape {
  std::int64_t size = 0;         ///< samples of the dataset
  std::int64_t sequence = 0;     ///< S
  bool document_starts = false;  ///< the batch also has "document_starts"
};

/// Batch with "tokens", "labels" and perhaps "document_starts" [n,S]; `fill` writes the row of each
/// index, index -1 becomes a row of token 0 without labels. Errors: internal "sample-index" for an
/// index outside [-1, size).
[[nodiscard]] Batch read_token_rows(std::span<const std::int64_t> indices,
                                    const RowShape& shape,
                                    const std::function<void(std::int64_t, const TokenRow&)>& fill);

}  // namespace colossal::detail
