// How do bytes become ids? They are ids.
#include "data/tokenizers/byte.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"

#include <algorithm>

namespace colossal {
namespace {

constexpr std::int64_t kBytes = 256;

class ByteTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) {
      ids.push_back(static_cast<unsigned char>(c));
    }
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const TokenId id : ids) {
      check(id >= 0 && id < kBytes,
            ErrorKind::data,
            "token-range",
            "id {} is no byte: the tokenizer has ids 0 to {}",
            id,
            kBytes - 1);
      text.push_back(static_cast<char>(id));
    }
    return text;
  }

  [[nodiscard]] std::int64_t size() const override { return kBytes; }
  [[nodiscard]] std::optional<TokenId> eod() const override { return 0; }
  [[nodiscard]] std::string fingerprint() const override { return sha256("byte"); }
  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t from) const override {
    return std::min(from, text.size());
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer(const TokenizerConfig& /*config*/) {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace colossal
