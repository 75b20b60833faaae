// How is a batch of token rows allocated and padded?
#include "data/detail/token_rows.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace colossal::detail {
namespace {

/// A [n,S] field of the batch, row by row.
class Field {
 public:
  Field(std::int64_t num_rows, std::int64_t sequence)
      : tensor_(at::empty({num_rows, sequence}, at::kLong)),
        data_(tensor_.data_ptr<std::int64_t>()),
        width_(static_cast<std::size_t>(sequence)) {}
  [[nodiscard]] std::span<std::int64_t> row(std::size_t index) const {
    return {data_ + index * width_, width_};
  }
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
  std::int64_t* data_;
  std::size_t width_;
};

}  // namespace

Batch read_token_rows(std::span<const std::int64_t> indices,
                      const RowShape& shape,
                      const std::function<void(std::int64_t, const TokenRow&)>& fill) {
  const Field tokens(std::ssize(indices), shape.sequence);
  const Field labels(std::ssize(indices), shape.sequence);
  const Field starts(shape.document_starts ? std::ssize(indices) : 0, shape.sequence);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    check(indices[i] >= -1 && indices[i] < shape.size,
          ErrorKind::internal,
          "sample-index",
          "sample {} does not exist, the set has {}",
          indices[i],
          shape.size);
    const TokenRow row = {tokens.row(i),
                          labels.row(i),
                          shape.document_starts ? starts.row(i) : std::span<std::int64_t>()};
    if (indices[i] >= 0) {
      fill(indices[i], row);
    } else {
      std::ranges::fill(row.tokens, 0);
      std::ranges::fill(row.labels, kIgnoreLabel);
      std::ranges::fill(row.starts, 0);
    }
  }
  Batch batch;
  batch.fields = {{"tokens", tokens.tensor()}, {"labels", labels.tensor()}};
  if (shape.document_starts) {
    batch.fields["document_starts"] = starts.tensor();
  }
  return batch;
}

}  // namespace colossal::detail
