// How is a batch of token rows allocated and padded?
#include "data/detail/token_rows.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace colossal::detail {

Batch read_token_rows(std::span<const std::int64_t> indices,
                      std::int64_t size,
                      std::int64_t sequence,
                      const std::function<void(std::int64_t, const TokenRow&)>& fill) {
  const auto num_rows = static_cast<std::int64_t>(indices.size());
  const auto width = static_cast<std::size_t>(sequence);
  at::Tensor tokens = at::empty({num_rows, sequence}, at::kLong);
  at::Tensor labels = at::empty({num_rows, sequence}, at::kLong);
  auto* token_row = tokens.data_ptr<std::int64_t>();
  auto* label_row = labels.data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    check(index >= -1 && index < size,
          ErrorKind::internal,
          "sample-index",
          "sample {} does not exist, the set has {}",
          index,
          size);
    const TokenRow row = {{token_row, width}, {label_row, width}};
    if (index >= 0) {
      fill(index, row);
    } else {
      std::ranges::fill(row.tokens, 0);
      std::ranges::fill(row.labels, kIgnoreLabel);
    }
    token_row += sequence;
    label_row += sequence;
  }
  Batch batch;
  batch.fields = {{"tokens", std::move(tokens)}, {"labels", std::move(labels)}};
  return batch;
}

}  // namespace colossal::detail
