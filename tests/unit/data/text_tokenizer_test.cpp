// Does the text dataset give the ids of its tokenizer, and know when the tokenizer is another one?
#include "tokenizers/toy.hpp"

using namespace colossal;
using namespace colossal::test;

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
