// How is a text file read? Mapped; its bytes are the tokens, or a tokenizer makes them once.
#include "data/text.hpp"

#include "core/log.hpp"
#include "core/text.hpp"
#include "data/detail/mapped_file.hpp"
#include "data/detail/sources.hpp"
#include "data/token_dataset.hpp"
#include "data/tokenizers/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

namespace colossal {
namespace {

constexpr std::int64_t kByteVocabulary = 256;

/// The bytes of one file, one document.
class TextFile : public TokenStream {
 public:
  explicit TextFile(const std::string& path) : file_(path) {
    const auto bytes = file_.bytes();
    const void* const hit = std::memchr(bytes.data(), kSeparator, bytes.size());
    check(hit == nullptr,
          ErrorKind::data,
          "separator-in-text",
          "'{}' holds the separator byte {} at offset {}; text files must not contain it (is this "
          "a binary file?)\n  fix   take the byte out, for example with tr -d '\\000', or name "
          "files of "
          "text",
          path,
          kSeparator,
          hit == nullptr ? 0 : static_cast<const std::uint8_t*>(hit) - bytes.data());
  }

  [[nodiscard]] std::int64_t num_tokens() const override { return std::ssize(file_.bytes()); }
  [[nodiscard]] std::int64_t num_documents() const override { return 1; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    return document == 0 ? 0 : num_tokens();
  }
  void copy(std::int64_t begin, std::span<std::int64_t> out) const override {
    file_.require_whole();
    const auto from = file_.bytes().subspan(static_cast<std::size_t>(begin), out.size());
    std::ranges::copy(from, out.begin());
  }
  [[nodiscard]] std::string identity() const override { return detail::identity_of(file_.bytes()); }

 private:
  detail::MappedFile file_;
};

constexpr double kSecondsBeforeLine = 2;

/// The ids of one file, one document, encoded when it is opened.
class EncodedFile : public TokenStream {
 public:
  EncodedFile(const std::string& path, const Tokenizer& tokenizer, std::size_t num_threads) {
    const detail::MappedFile file(path);
    const auto bytes = file.bytes();
    identity_ = detail::identity_of(bytes);
    const auto pieces =
        cut_text(tokenizer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const auto start = std::chrono::steady_clock::now();
    for (const std::vector<TokenId>& ids : encode_all(tokenizer, pieces, num_threads)) {
      ids_.insert(ids_.end(), ids.begin(), ids.end());
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (taken.count() > kSecondsBeforeLine) {
      log::info("encoded {}: {} tokens in {:.1f} s; `dataset prepare` does this once for all runs",
                detail::shown(path),
                thousands(num_tokens()),
                taken.count());
    }
  }

  [[nodiscard]] std::int64_t num_tokens() const override { return std::ssize(ids_); }
  [[nodiscard]] std::int64_t num_documents() const override { return 1; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    return document == 0 ? 0 : num_tokens();
  }
  void copy(std::int64_t begin, std::span<std::int64_t> out) const override {
    std::ranges::copy(std::span(ids_).subspan(static_cast<std::size_t>(begin), out.size()),
                      out.begin());
  }
  [[nodiscard]] std::string identity() const override { return identity_; }

 private:
  std::vector<TokenId> ids_;
  std::string identity_;
};

std::unique_ptr<Dataset> make_encoded_dataset(const DatasetRequest& request) {
  const std::unique_ptr<Tokenizer> tokenizer = detail::tokenizer_of(request);
  TokenSourceName name{"text", detail::files_of(request), tokenizer->fingerprint()};
  std::vector<std::unique_ptr<TokenStream>> files;
  std::optional<std::int64_t> separator;
  const auto num_threads = static_cast<std::size_t>(std::max<std::int64_t>(1, request.threads));
  for (const std::string& path : name.files) {
    if (!files.empty()) {
      separator = require_eod(*tokenizer);
    }
    files.push_back(std::make_unique<EncodedFile>(path, *tokenizer, num_threads));
  }
  return make_token_dataset(join_streams(std::move(files), separator), request, std::move(name));
}

}  // namespace

std::unique_ptr<Dataset> make_text_dataset(const DatasetRequest& request) {
  if (request.data.tokenizer && request.data.tokenizer->type != TokenizerType::byte) {
    return make_encoded_dataset(request);
  }
  check(request.vocab_size >= kByteVocabulary,
        ErrorKind::data,
        "vocab-too-small",
        "byte tokens need model.vocab_size >= {}, it is {}",
        kByteVocabulary,
        request.vocab_size);
  TokenSourceName name{"text", detail::files_of(request)};
  std::vector<std::unique_ptr<TokenStream>> files;
  for (const std::string& path : name.files) {
    files.push_back(std::make_unique<TextFile>(path));
  }
  return make_token_dataset(join_streams(std::move(files), kSeparator), request, std::move(name));
}

}  // namespace colossal
