// How is a row filled? From one place of the stream, or piece by piece.
#include "data/token_dataset.hpp"

#include "core/hash.hpp"
#include "core/text.hpp"
#include "data/detail/sources.hpp"
#include "data/detail/token_rows.hpp"
#include "data/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

using detail::TokenRow;

/// Fills `row` with the tokens from `begin` on and their successors; the last token may have none.
void copy_with_labels(const TokenStream& stream,
                      std::int64_t begin,
                      const TokenRow& row,
                      bool last_has_label) {
  stream.copy(begin, row.tokens);
  std::ranges::copy(row.tokens.subspan(1), row.labels.begin());
  if (last_has_label) {
    stream.copy(begin + std::ssize(row.tokens), row.labels.last(1));
  } else {
    row.labels.back() = kIgnoreLabel;
  }
}

/// Part of a row.
TokenRow part_of(const TokenRow& row, std::size_t first, std::size_t count) {
  return {row.tokens.subspan(first, count),
          row.labels.subspan(first, count),
          row.starts.empty() ? row.starts : row.starts.subspan(first, count)};
}

/// Token 0 without labels, a document of its own.
void fill_padding(const TokenRow& row, std::size_t first) {
  const TokenRow rest = part_of(row, first, row.tokens.size() - first);
  std::ranges::fill(rest.tokens, 0);
  std::ranges::fill(rest.labels, kIgnoreLabel);
  std::ranges::fill(rest.starts, static_cast<std::int64_t>(first));
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(std::unique_ptr<TokenStream> stream,
               const DatasetRequest& request,
               TokenSourceName name)
      : stream_(std::move(stream)), name_(std::move(name)) {
    shape_.sequence = request.data.seq_length;
    shape_.document_starts = !request.data.cross_document_attention;
    const bool packed = request.data.packing != Packing::concat;
    check((!packed && !shape_.document_starts) || stream_->num_documents() > 0,
          ErrorKind::data,
          "sequence-packing",
          "{}: {} needs to know where documents begin, and these files do not say; use Megatron "
          "files, or packing: concat with cross_document_attention: true",
          detail::shown_files(name_.files),
          packed ? "data.packing" : "data.cross_document_attention: false");
    if (packed) {
      plan_.emplace(*stream_, request.data.packing, shape_.sequence);
      shape_.size = plan_->num_rows();
      check_not_short(request.split, shape_.size > 0, 2);
    } else {
      const std::int64_t needed = request.split == Split::train ? shape_.sequence + 1 : 2;
      check_not_short(request.split, stream_->num_tokens() >= needed, needed);
      const std::int64_t predicted = stream_->num_tokens() - 1;
      const std::int64_t rest = request.split == Split::train ? 0 : shape_.sequence - 1;
      shape_.size = (predicted + rest) / shape_.sequence;
    }
  }

  [[nodiscard]] std::int64_t size() const override { return shape_.size; }

  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    return detail::read_token_rows(
        indices, shape_, [this](std::int64_t index, const TokenRow& row) {
          plan_ ? read_pieces(plan_->row(index), row) : read_cut(index * shape_.sequence, row);
        });
  }

  [[nodiscard]] std::string fingerprint() const override {
    return sha256(name_.kind + " " + stream_->identity()) +
           (name_.tokenizer.empty() ? "" : "+" + name_.tokenizer);
  }

  [[nodiscard]] std::string summary() const override {
    const std::string packed =
        plan_ ? fmt::format(" in {}, {:.1f} % filled",
                            counted(stream_->num_documents(), "document"),
                            100.0 * static_cast<double>(plan_->num_tokens()) /
                                static_cast<double>(shape_.size * shape_.sequence))
              : "";
    return fmt::format("{}: {}{}, {}",
                       detail::shown_files(name_.files),
                       counted(stream_->num_tokens(), "token"),
                       packed,
                       counted(shape_.size, "sample"));
  }

 private:
  void check_not_short(Split split, bool enough, std::int64_t needed) const {
    check(enough,
          ErrorKind::data,
          "data-too-short",
          "{}: {}, seq_length {} needs at least {}{}; data.{} must name more data",
          detail::shown_files(name_.files),
          counted(stream_->num_tokens(), "token"),
          shape_.sequence,
          needed,
          needed == 2 && shape_.size == 0 ? " in one document" : "",
          split == Split::train ? "train" : "eval");
  }

  /// A row cut from the stream; what lies beyond its end is padding.
  void read_cut(std::int64_t begin, const TokenRow& row) const {
    const auto count =
        static_cast<std::size_t>(std::min(stream_->num_tokens() - 1 - begin, shape_.sequence));
    copy_with_labels(*stream_, begin, part_of(row, 0, count), true);
    if (!row.starts.empty()) {
      fill_starts(begin, row.starts.first(count));
    }
    fill_padding(row, count);
  }

  /// starts[i] = place of the start of the document that holds token begin + i, 0 if that is before
  /// the row.
  void fill_starts(std::int64_t begin, std::span<std::int64_t> starts) const {
    std::int64_t document = document_at(*stream_, begin);
    std::int64_t start = 0;
    std::int64_t next = stream_->document_begin(document + 1);
    for (std::int64_t i = 0; i < std::ssize(starts); ++i) {
      while (begin + i >= next) {  // empty documents begin and end here
        start = i;
        next = stream_->document_begin(++document + 1);
      }
      starts[static_cast<std::size_t>(i)] = start;
    }
  }

  void read_pieces(std::span<const Piece> pieces, const TokenRow& row) const {
    std::size_t at = 0;
    for (const Piece& piece : pieces) {
      const TokenRow part = part_of(row, at, static_cast<std::size_t>(piece.length));
      copy_with_labels(*stream_, piece.begin, part, !piece.ends);
      std::ranges::fill(part.starts, static_cast<std::int64_t>(at));
      at += part.tokens.size();
    }
    fill_padding(row, at);
  }

  std::unique_ptr<TokenStream> stream_;
  TokenSourceName name_;
  detail::RowShape shape_;
  std::optional<RowPlan> plan_;  ///< unless rows are cut from the stream
};

}  // namespace

std::unique_ptr<Dataset> make_token_dataset(std::unique_ptr<TokenStream> stream,
                                            const DatasetRequest& request,
                                            TokenSourceName name) {
  return std::make_unique<TokenDataset>(std::move(stream), request, std::move(name));
}

}  // namespace colossal
