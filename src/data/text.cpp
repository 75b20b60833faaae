// How is a text file read? Mapped, checked once for the separator, and copied row by row.
#include "data/text.hpp"

#include "core/hash.hpp"
#include "data/detail/mapped_file.hpp"
#include "data/detail/token_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <glob.h>
#include <utility>

namespace colossal {
namespace {

constexpr std::int64_t kByteVocabulary = 256;

/// One file and the position of its first token in the stream.
struct Document {
  std::filesystem::path path;
  detail::MappedFile file;
  std::int64_t begin = 0;
};

/// Files that a glob names, sorted; a name without wildcards stands for itself. Errors: data
/// "data-empty".
std::vector<std::string> expand(const std::string& name) {
  std::error_code ignored;
  if (name.find_first_of("*?[") == std::string::npos || std::filesystem::exists(name, ignored)) {
    return {name};
  }
  glob_t found = {};
  const int status = ::glob(name.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv,
                                 found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  check(!files.empty(), ErrorKind::data, "data-empty", "no file matches '{}' (0 files)", name);
  return files;
}

/// The path as a user would type it here.
std::string shown(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path relative = std::filesystem::proximate(path, failed);
  return failed || relative.native().starts_with("..") ? path.string() : relative.string();
}

void check_separator(const Document& document) {
  const auto bytes = document.file.bytes();
  const void* const hit = std::memchr(bytes.data(), kSeparator, bytes.size());
  check(hit == nullptr,
        ErrorKind::data,
        "separator-in-text",
        "'{}' holds the separator byte {} at offset {}; text files must not contain it (is this a "
        "binary file?)",
        document.path.string(),
        kSeparator,
        hit == nullptr ? 0 : static_cast<const std::uint8_t*>(hit) - bytes.data());
}

/// 4190000 -> "4,190,000".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

class TextDataset : public Dataset {
 public:
  explicit TextDataset(const DatasetRequest& request)
      : split_(request.split), sequence_(request.data.seq_length) {
    check(request.vocab_size >= kByteVocabulary,
          ErrorKind::data,
          "vocab-too-small",
          "byte tokens need model.vocab_size >= {}, it is {}",
          kByteVocabulary,
          request.vocab_size);
    open(split_ == Split::train ? request.data.train : request.data.eval);
    const std::int64_t needed = split_ == Split::train ? sequence_ + 1 : 2;
    check(num_tokens_ >= needed,
          ErrorKind::data,
          "data-too-short",
          "{}: {} tokens, seq_length {} needs at least {}",
          shown(documents_.front().path),
          num_tokens_,
          sequence_,
          needed);
    const std::int64_t predicted = num_tokens_ - 1;
    size_ = (split_ == Split::train ? predicted : predicted + sequence_ - 1) / sequence_;
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    return detail::read_token_rows(
        indices, size_, sequence_, [this](std::int64_t index, const detail::TokenRow& row) {
          read_row(index, row);
        });
  }

  [[nodiscard]] std::string fingerprint() const override {
    std::string identity = "text";
    for (const Document& document : documents_) {
      const auto bytes = document.file.bytes();
      identity += fmt::format(" {}:{:08x}", bytes.size(), crc32c(std::as_bytes(bytes)));
    }
    return sha256(identity);
  }

  [[nodiscard]] std::string summary() const override {
    const std::size_t others = documents_.size() - 1;
    return fmt::format("{}{}: {} tokens, {} samples",
                       shown(documents_.front().path),
                       others == 0 ? "" : fmt::format(" and {} more", others),
                       grouped(num_tokens_),
                       grouped(size_));
  }

 private:
  void open(const std::vector<std::string>& names) {
    check(!names.empty(),
          ErrorKind::data,
          "data-empty",
          "data.{} names no file",
          split_ == Split::train ? "train" : "eval");
    for (const std::string& name : names) {
      for (const std::string& path : expand(name)) {
        const std::int64_t begin = documents_.empty() ? 0 : num_tokens_ + 1;
        documents_.push_back({path, detail::MappedFile(path), begin});
        check_separator(documents_.back());
        num_tokens_ = begin + std::ssize(documents_.back().file.bytes());
      }
    }
  }

  /// Tokens of sample `index` and their successors; what lies beyond the stream is padding.
  void read_row(std::int64_t index, const detail::TokenRow& row) const {
    const std::int64_t begin = index * sequence_;
    const auto count = static_cast<std::size_t>(std::min(num_tokens_ - 1 - begin, sequence_));
    copy(begin, row.tokens.first(count));
    copy(begin + 1, row.labels.first(count));
    std::ranges::fill(row.tokens.subspan(count), std::int64_t{kSeparator});
    std::ranges::fill(row.labels.subspan(count), kIgnoreLabel);
  }

  /// Tokens of the stream from position `begin` on.
  void copy(std::int64_t begin, std::span<std::int64_t> out) const {
    auto document = std::ranges::upper_bound(documents_, begin, {}, &Document::begin) - 1;
    auto offset = static_cast<std::size_t>(begin - document->begin);
    while (!out.empty()) {
      const auto rest = document->file.bytes().subspan(offset);  // empty at a separator
      const std::size_t count = std::min(rest.size(), out.size());
      std::ranges::copy(rest.first(count), out.begin());
      out = out.subspan(count);
      if (!out.empty()) {
        out.front() = kSeparator;
        out = out.subspan(1);
        ++document;
        offset = 0;
      }
    }
  }

  Split split_;
  std::int64_t sequence_;
  std::vector<Document> documents_;
  std::int64_t num_tokens_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> make_text_dataset(const DatasetRequest& request) {
  return std::make_unique<TextDataset>(request);
}

}  // namespace colossal
