// Do threads together give what one gives alone?
#include "data/tokenizers/parallel.hpp"

#include "toy.hpp"

#include <numeric>

using namespace colossal;
using namespace colossal::test;

namespace {

/// Refuses one text.
class Refusing : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    check(text != "bad", ErrorKind::data, "refused", "refused");
    ids.push_back(static_cast<TokenId>(text.size()));
  }
  [[nodiscard]] std::string decode(std::span<const TokenId> /*ids*/) const override { return {}; }
  [[nodiscard]] std::int64_t size() const override { return 1; }
  [[nodiscard]] std::optional<TokenId> eod() const override { return {}; }
  [[nodiscard]] std::string fingerprint() const override { return {}; }
  [[nodiscard]] std::size_t boundary(std::string_view text, std::size_t /*from*/) const override {
    return text.size();
  }
};

}  // namespace

TEST_CASE("texts keep their order however many threads there are", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) {
    texts.push_back("hello " + std::string(static_cast<std::size_t>(i % 17), 'l'));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto ids = encode_all(*tokenizer, views);
  REQUIRE(ids.size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(ids[i] == encode(*tokenizer, texts[i]));
  }
  CHECK(encode_all(*tokenizer, {}).empty());
}

TEST_CASE("an error in a thread is the caller's", "[tokenizers]") {
  std::vector<std::string_view> texts(100, "good");
  texts[63] = "bad";
  const Error error = error_of([&] { static_cast<void>(encode_all(Refusing(), texts)); });
  CHECK(error.id() == "refused");
  CHECK(error_of([] { static_cast<void>(require_eod(Refusing())); }).id() == "tokenizer-eod");
}

TEST_CASE("a long text in pieces has the ids of the whole", "[tokenizers]") {
  const TempDir folder;
  const auto tokenizer = open_at(TokenizerType::bpe, write_toy(folder.path()));
  std::string text;
  for (int i = 0; text.size() < 900'000; ++i) {
    text += i % 3 == 0 ? "hello, she'll  " : "hell " + std::to_string(i) + "\n ";
  }
  const auto pieces = cut_text(*tokenizer, text);
  CHECK(pieces.size() == 4);
  Ids joined;
  for (const auto& ids : encode_all(*tokenizer, pieces)) {
    joined.insert(joined.end(), ids.begin(), ids.end());
  }
  CHECK(joined == encode(*tokenizer, text));
  CHECK(cut_text(Refusing(), text).size() == 1);
  CHECK(cut_text(*tokenizer, "").empty());
}
