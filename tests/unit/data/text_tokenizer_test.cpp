// Do datasets of text and of token files keep to the ids of their tokenizer, and know when it is
// another one?
#include "support/token_files.hpp"
#include "tokenizers/toy.hpp"

namespace colossal::test {
namespace {

/// Text files with the toy tokenizer.
class Texts {
 public:
  explicit Texts(const std::vector<std::string>& texts) {
    std::vector<std::string> files;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      files.push_back(write_file(folder_.path(), std::to_string(i) + ".txt", texts[i]));
    }
    config = text_config(files, 3);
    config.tokenizer = {.type = TokenizerType::bpe, .path = write_toy(folder_.path())};
  }
  [[nodiscard]] std::unique_ptr<Dataset> open(std::int64_t vocabulary = 260) const {
    return open_dataset(
        {.data = config, .vocab_size = vocabulary, .seed = 1, .split = Split::eval});
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

  DataConfig config;

 private:
  TempDir folder_;
};

using Row = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("files are joined by the end of text", "[text]") {
  const Texts texts({"hello", "hell yes"});
  const auto set = texts.open();
  REQUIRE(set->size() == 3);  // 258 o 259 258 ' ' y e s
  const Batch batch = set->read(Row{0, 1, 2});
  CHECK(row_of(batch, "tokens", 0) == Row{258, 'o', 259});
  CHECK(row_of(batch, "labels", 0) == Row{'o', 259, 258});
  CHECK(row_of(batch, "tokens", 1) == Row{258, ' ', 'y'});
  CHECK(row_of(batch, "labels", 1) == Row{' ', 'y', 'e'});
  CHECK(row_of(batch, "labels", 2) == Row{'s', kIgnoreLabel, kIgnoreLabel});
  CHECK(set->summary().find("8 tokens") != std::string::npos);
}

TEST_CASE("any byte may stand in text of a byte-level vocabulary", "[text]") {
  const Texts texts({std::string("a\0\xFF!b", 5)});
  const Batch batch = texts.open()->read(Row{0});
  CHECK(row_of(batch, "tokens", 0) == Row{'a', 0, 255});
}

TEST_CASE("a vocabulary smaller than the tokenizer is refused", "[text]") {
  const Texts texts({"hello hello"});
  const Error error = error_of([&] { static_cast<void>(texts.open(259)); });
  CHECK(error.exit_code() == 4);
  CHECK(error.id() == "vocab-too-small");
}

TEST_CASE("the fingerprint ends with the tokenizer's", "[text]") {
  Texts texts({"hello hello"});
  const std::string with_toy = texts.open()->fingerprint();
  CHECK(tokenizer_part(with_toy) == open_tokenizer(*texts.config.tokenizer)->fingerprint());
  write_toy(texts.folder(), "h e\n");
  const std::string with_other = texts.open()->fingerprint();
  CHECK(tokenizer_part(with_other) != tokenizer_part(with_toy));
  CHECK(with_other.substr(0, 64) == with_toy.substr(0, 64));
  texts.config.tokenizer = TokenizerConfig{};
  CHECK(tokenizer_part(texts.open()->fingerprint()).empty());
}

namespace {

/// A file of token ids with the tokenizer that has made it: 260 ids.
class TokenFileWithToy {
 public:
  explicit TokenFileWithToy(const Row& ids) {
    config = text_config({write_megatron(folder_.path(), "a", {ids})}, 2);
    config.type = DataType::tokens;
    config.tokenizer = {.type = TokenizerType::bpe, .path = write_toy(folder_.path())};
  }
  [[nodiscard]] std::unique_ptr<Dataset> open(std::int64_t vocabulary = 300) const {
    return open_dataset(
        {.data = config, .vocab_size = vocabulary, .seed = 1, .split = Split::train});
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

  DataConfig config;

 private:
  TempDir folder_;
};

}  // namespace

TEST_CASE("token files have no id beyond their tokenizer, however many rows the model has",
          "[tokens]") {
  TokenFileWithToy good({258, 259, 'a', 'b', 'c'});
  CHECK(row_of(good.open()->read(Row{0}), "tokens", 0) == Row{258, 259});
  good.config.validate = DataValidation::full;
  CHECK(good.open()->size() == 2);

  TokenFileWithToy wrong({1, 2, 3, 4, 260});
  CHECK(row_of(wrong.open()->read(Row{0}), "tokens", 0) == Row{1, 2});
  const Error late = error_of([&] { static_cast<void>(wrong.open()->read(Row{1})); });
  CHECK(late.id() == "token-range");
  const std::string told = late.what();
  CHECK(told.find("byte 8: token id 260 is outside the vocabulary of 260 ids") !=
        std::string::npos);
  CHECK(told.find("data.tokenizer") != std::string::npos);
  wrong.config.validate = DataValidation::full;
  CHECK(error_of([&] { static_cast<void>(wrong.open()); }).id() == "token-range");
  wrong.config.tokenizer.reset();
  CHECK(wrong.open()->size() == 2);
  wrong.config.tokenizer = TokenizerConfig{};  // bytes
  CHECK(error_of([&] { static_cast<void>(wrong.open()); }).id() == "token-range");
}

TEST_CASE("a model with fewer ids than the tokenizer of its token files is refused", "[tokens]") {
  TokenFileWithToy set({1, 2, 3});
  CHECK(set.open(260)->size() == 1);
  const Error error = error_of([&] { static_cast<void>(set.open(259)); });
  CHECK(error.id() == "vocab-too-small");
  CHECK(error.exit_code() == 4);
  CHECK(error.key() == "model.vocab_size");
  set.config.tokenizer->path += "/none";
  const Error missing = error_of([&] { static_cast<void>(set.open()); });
  CHECK(missing.id() == "file-not-found");
  CHECK(missing.key() == "data.tokenizer.path");
}

TEST_CASE("token files have the fingerprint of their ids and that of their tokenizer", "[tokens]") {
  TokenFileWithToy set({1, 2, 3, 4, 5});
  const std::string with_toy = set.open()->fingerprint();
  CHECK(tokenizer_part(with_toy) == open_tokenizer(*set.config.tokenizer)->fingerprint());
  DataSource& item = set.config.train.front();
  item.weight = 2;
  CHECK(tokenizer_part(set.open()->fingerprint()) == tokenizer_part(with_toy));
  item.weight.reset();
  write_toy(set.folder(), "h e\n");
  CHECK(tokenizer_part(set.open()->fingerprint()) != tokenizer_part(with_toy));
  for (const auto& none : {std::optional<TokenizerConfig>(), std::optional(TokenizerConfig{})}) {
    set.config.tokenizer = none;
    CHECK(set.open()->fingerprint() == with_toy.substr(0, 64));
  }
}

}  // namespace colossal::test
