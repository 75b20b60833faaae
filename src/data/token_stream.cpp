// How do several files become one stream?
#include "data/token_stream.hpp"

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

class JoinedStream : public TokenStream {
 public:
  JoinedStream(std::vector<std::unique_ptr<TokenStream>> parts,
               std::optional<std::int64_t> separator)
      : parts_(std::move(parts)), separator_(separator) {
    bool all = true;
    for (const std::unique_ptr<TokenStream>& part : parts_) {
      if (separator_ && !begins_.empty()) {
        ++num_tokens_;
      }
      begins_.push_back(num_tokens_);
      first_documents_.push_back(num_documents_);
      num_tokens_ += part->num_tokens();
      num_documents_ += part->num_documents();
      all = all && part->num_documents() > 0;
    }
    num_documents_ = all ? num_documents_ : 0;
  }

  [[nodiscard]] std::int64_t num_tokens() const override { return num_tokens_; }
  [[nodiscard]] std::int64_t num_documents() const override { return num_documents_; }

  void copy(std::int64_t begin, std::span<std::int64_t> out) const override {
    std::size_t part = last_not_above(begins_, begin);
    std::int64_t offset = begin - begins_[part];
    while (!out.empty()) {
      const std::int64_t rest = parts_[part]->num_tokens() - offset;  // 0 at a separator
      const std::size_t count = std::min(static_cast<std::size_t>(rest), out.size());
      parts_[part]->copy(offset, out.first(count));
      out = out.subspan(count);
      if (separator_ && !out.empty()) {
        out.front() = *separator_;
        out = out.subspan(1);
      }
      ++part;
      offset = 0;
    }
  }

  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    if (document == num_documents_) {
      return num_tokens_;
    }
    const std::size_t part = last_not_above(first_documents_, document);
    return begins_[part] + parts_[part]->document_begin(document - first_documents_[part]);
  }

  [[nodiscard]] std::string identity() const override {
    std::string text;
    for (const std::unique_ptr<TokenStream>& part : parts_) {
      text += (text.empty() ? "" : " ") + part->identity();
    }
    return text;
  }

 private:
  static std::size_t last_not_above(const std::vector<std::int64_t>& starts, std::int64_t value) {
    return static_cast<std::size_t>(std::ranges::upper_bound(starts, value) - starts.begin()) - 1;
  }

  std::vector<std::unique_ptr<TokenStream>> parts_;
  std::optional<std::int64_t> separator_;
  std::vector<std::int64_t> begins_;           ///< position of each part's first token
  std::vector<std::int64_t> first_documents_;  ///< number of each part's first document
  std::int64_t num_tokens_ = 0;
  std::int64_t num_documents_ = 0;
};

}  // namespace

std::int64_t document_at(const TokenStream& stream, std::int64_t position) {
  std::int64_t low = 0;  // the last document that begins at or before `position` is in [low, high)
  std::int64_t high = stream.num_documents();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (stream.document_begin(middle) <= position ? low : high) = middle;
  }
  return low;
}

std::unique_ptr<TokenStream> join_streams(std::vector<std::unique_ptr<TokenStream>> parts,
                                          std::optional<std::int64_t> separator) {
  return std::make_unique<JoinedStream>(std::move(parts), separator);
}

}  // namespace colossal
