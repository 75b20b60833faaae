// What do all token datasets share? The batch of [n,S] tokens and labels, filled row by row.
#pragma once

#include "core/batch.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace colossal::detail {

/// One row to fill: S tokens and S labels.
struct TokenRow {
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> labels;
};

/// Batch with "tokens" and "labels" [n,S]; `fill` writes the row of each index, index -1 becomes a
/// row of token 0 without labels. Errors: internal "sample-index" for an index outside [-1, size).
[[nodiscard]] Batch read_token_rows(std::span<const std::int64_t> indices,
                                    std::int64_t size,
                                    std::int64_t sequence,
                                    const std::function<void(std::int64_t, const TokenRow&)>& fill);

}  // namespace colossal::detail
