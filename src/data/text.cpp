// How is a text file read? Mapped, checked once for the separator, its bytes are the tokens.
#include "data/text.hpp"

#include "core/hash.hpp"
#include "data/detail/mapped_file.hpp"
#include "data/detail/sources.hpp"
#include "data/token_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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
          "a binary file?)",
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
    const auto from = file_.bytes().subspan(static_cast<std::size_t>(begin), out.size());
    std::ranges::copy(from, out.begin());
  }
  [[nodiscard]] std::string identity() const override {
    const auto bytes = file_.bytes();
    return fmt::format("{}:{:08x}", bytes.size(), crc32c(std::as_bytes(bytes)));
  }

 private:
  detail::MappedFile file_;
};

}  // namespace

std::unique_ptr<Dataset> make_text_dataset(const DatasetRequest& request) {
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
