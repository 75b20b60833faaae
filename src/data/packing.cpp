// How are rows filled by first-fit decreasing? A tree over the free space of all rows finds the
// first that fits.
#include "data/packing.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace colossal {
namespace {

/// Free space of rows 0, 1, ...: a tree of maxima.
class FreeSpace {
 public:
  /// Room for `num_rows` rows of `capacity` tokens each.
  FreeSpace(std::size_t num_rows, std::int32_t capacity)
      : leaves_(std::bit_ceil(std::max<std::size_t>(num_rows, 1))), most_(2 * leaves_, capacity) {}

  /// Takes `length` tokens of the first row that has them; one always does.
  std::size_t take(std::int32_t length) {
    std::size_t node = 1;
    while (node < leaves_) {
      node = 2 * node + (most_[2 * node] >= length ? 0 : 1);
    }
    most_[node] -= length;
    for (std::size_t above = node / 2; above > 0; above /= 2) {
      most_[above] = std::max(most_[2 * above], most_[2 * above + 1]);
    }
    return node - leaves_;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int32_t> most_;
};

/// Appends the pieces of tokens [begin, end), one document.
void append_pieces(std::int64_t begin,
                   std::int64_t end,
                   std::int64_t sequence,
                   std::vector<Piece>& pieces) {
  for (; begin < end; begin += sequence) {
    const std::int64_t length = std::min(sequence, end - begin);
    const bool ends = begin + length == end;
    if (!ends || length > 1) {
      pieces.push_back({begin, static_cast<std::int32_t>(length), ends});
    }
  }
}

}  // namespace

RowPlan::RowPlan(const TokenStream& stream, Packing packing, std::int64_t sequence) {
  std::int64_t begin = 0;
  for (std::int64_t document = 0; document < stream.num_documents(); ++document) {
    const std::int64_t end = stream.document_begin(document + 1);
    append_pieces(begin, end, sequence, pieces_);
    begin = end;
  }
  for (const Piece& piece : pieces_) {
    num_tokens_ += piece.length;
  }
  if (packing == Packing::greedy) {
    pack_greedily(sequence);
  } else {
    row_ends_.resize(pieces_.size());
    std::iota(row_ends_.begin(), row_ends_.end(), 1);
  }
}

void RowPlan::pack_greedily(std::int64_t sequence) {
  if (pieces_.empty()) {
    return;
  }
  std::ranges::stable_sort(pieces_,
                           [](const Piece& a, const Piece& b) { return a.length > b.length; });
  FreeSpace space(pieces_.size(), static_cast<std::int32_t>(sequence));
  std::vector<std::size_t> rows;
  for (const Piece& piece : pieces_) {
    rows.push_back(space.take(piece.length));
    if (rows.back() >= row_ends_.size()) {  // rows are opened one after another
      row_ends_.push_back(0);
    }
    ++row_ends_[rows.back()];
  }
  std::inclusive_scan(row_ends_.begin(), row_ends_.end(), row_ends_.begin());
  std::vector<Piece> by_row(pieces_.size());
  std::vector<std::int64_t> next(row_ends_.size(), 0);  // where each row's next piece goes
  std::copy(row_ends_.begin(), row_ends_.end() - 1, next.begin() + 1);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    by_row[static_cast<std::size_t>(next[rows[i]]++)] = pieces_[i];
  }
  pieces_ = std::move(by_row);
}

std::span<const Piece> RowPlan::row(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const auto begin = static_cast<std::size_t>(at == 0 ? 0 : row_ends_[at - 1]);
  return std::span(pieces_).subspan(begin, static_cast<std::size_t>(row_ends_[at]) - begin);
}

}  // namespace colossal
