// Do documents become the ids that the tokenizer gives, whatever a document is?
#include "data/prepare.hpp"

#include "data/token_file.hpp"
#include "tokenizers/toy.hpp"

#include <nlohmann/json.hpp>

namespace colossal::test {

using Catch::Matchers::Contains;

namespace {

/// The documents of a token file.
std::vector<Ids> documents_of(const std::string& bin, std::int64_t vocab_size = 260) {
  const auto file =
      open_token_file(bin, {.vocab_size = vocab_size, .validate = DataValidation::full});
  std::vector<Ids> documents;
  for (std::int64_t i = 0; i < file->num_documents(); ++i) {
    const std::int64_t begin = file->document_begin(i);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(file->document_begin(i + 1) - begin));
    file->copy(begin, ids);
    documents.emplace_back(ids.begin(), ids.end());
  }
  return documents;
}

/// Text files, the toy tokenizer and an output in one folder.
class Sandbox {
 public:
  Sandbox() {
    options.tokenizer = {.type = TokenizerType::bpe, .path = write_toy(folder_.path())};
    options.output = (folder_.path() / "out").string();
  }
  void input(const std::string& name, std::string_view text) {
    options.inputs.push_back(write_file(folder_.path(), name, text));
  }
  [[nodiscard]] std::string bin() const { return options.output + ".bin"; }

  PrepareOptions options;

 private:
  TempDir folder_;
};

}  // namespace

TEST_CASE("each file is a document with its end", "[prepare]") {
  Sandbox box;
  box.input("a.txt", "hello\n");
  box.input("empty.txt", "");
  box.input("b.txt", "hell he");
  const PrepareReport report = prepare_dataset(box.options);
  CHECK(documents_of(box.bin()) == std::vector<Ids>{{258, 'o', '\n', 259}, {258, ' ', 256, 259}});
  const TokenStatistics& all = report.statistics;
  CHECK(all.num_documents == 2);
  CHECK(all.num_tokens == 8);
  CHECK(all.num_empty == 1);
  CHECK(all.num_short == 2);
  CHECK(all.smallest == '\n');
  CHECK(all.largest == 259);
  CHECK(report.bin == box.bin());
  CHECK(report.type == "uint16");
  CHECK(report.num_bytes == 13);
}

TEST_CASE("lines are documents without their ends", "[prepare]") {
  Sandbox box;
  box.options.split = DocumentSplit::line;
  box.input("a.txt", "he\r\n\nhell\n");
  box.input("b.txt", "\n\nhe");
  const PrepareReport report = prepare_dataset(box.options);
  CHECK(documents_of(box.bin()) == std::vector<Ids>{{256, 259}, {258, 259}, {256, 259}});
  CHECK(report.statistics.num_empty == 3);
}

TEST_CASE("paragraphs end at blank lines and at the end of a file", "[prepare]") {
  Sandbox box;
  box.options.split = DocumentSplit::blank_line;
  box.options.end_documents = false;
  box.input("a.txt", "\n \nhe\nhell\n\t\n\nhe\r\nhe\n\n");
  box.input("b.txt", "hell");
  CHECK(prepare_dataset(box.options).statistics.num_documents == 3);
  CHECK(documents_of(box.bin()) == std::vector<Ids>{{256, '\n', 258}, {256, '\n', 256}, {258}});
}

TEST_CASE("a file larger than all buffers has the ids of its whole text", "[prepare]") {
  Sandbox box;
  std::string text;
  for (int i = 0; text.size() < 1'500'000; ++i) {
    text += i % 7 == 0 ? "  hello\n\n" : "she'll hell " + std::to_string(i) + " ";
  }
  box.input("a.txt", text);
  const PrepareReport report = prepare_dataset(box.options);
  Ids expected = encode(*open_tokenizer(box.options.tokenizer), text);
  expected.push_back(259);
  CHECK(report.statistics.num_documents == 1);
  CHECK(documents_of(box.bin()) == std::vector<Ids>{expected});
}

TEST_CASE("a text without any place to cut is read whole", "[prepare]") {
  Sandbox box;
  const std::string text(1'100'000, 'l');
  box.input("a.txt", text);
  box.options.end_documents = false;
  CHECK(prepare_dataset(box.options).statistics.num_tokens == 550'000);
}

TEST_CASE("inputs that cannot be used are refused and leave nothing", "[prepare]") {
  Sandbox box;
  box.input("a.txt", "hello");
  const auto error_with = [&](const std::string& input) {
    box.options.inputs.push_back(input);
    const Error error = error_of([&] { static_cast<void>(prepare_dataset(box.options)); });
    box.options.inputs.pop_back();
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains(input));
    CHECK_FALSE(std::filesystem::exists(box.bin()));
    return std::string(error.id());
  };
  CHECK(error_with("/nonexistent.txt") == "file-not-found");
  CHECK(error_with("/tmp") == "data-unreadable");
  const TempDir other;
  box.options.tokenizer = {};
  CHECK(error_with(write_file(other.path(), "b.txt", std::string("a\0b", 3))) ==
        "separator-in-text");
  box.options.inputs.clear();
  CHECK(error_with(write_file(other.path(), "c.txt", "")) == "data-empty");
}

TEST_CASE("a vocabulary without an end needs --no-eod", "[prepare]") {
  Sandbox box;
  Json json = toy_json();
  json["added_tokens"] = nullptr;
  const TempDir other;
  box.options.tokenizer.path = write_file(other.path(), "tokenizer.json", json.dump());
  box.input("a.txt", "hello");
  CHECK(error_of([&] { static_cast<void>(prepare_dataset(box.options)); }).id() == "tokenizer-eod");
  box.options.end_documents = false;
  CHECK(prepare_dataset(box.options).statistics.num_tokens == 2);
}

TEST_CASE("the report is readable by people and programs", "[prepare]") {
  Sandbox box;
  box.input("a.txt", "hello hello hello hello hello");
  const PrepareReport report = prepare_dataset(box.options);
  CHECK_THAT(to_text(report), Contains("out.bin: 1 document, 15 tokens (uint16)"));
  CHECK_THAT(to_text(report), Contains("ids        32 to 259"));
  const Json json = Json::parse(to_json(report));
  CHECK(json.at("tokens") == 15);
  CHECK(json.at("documents") == 1);
  CHECK(json.at("largest_id") == 259);
}

TEST_CASE("a tokenizer is named by kind and path", "[prepare]") {
  CHECK(parse_tokenizer("byte").type == TokenizerType::byte);
  CHECK(parse_tokenizer("bpe:a/b:c").path == "a/b:c");
  CHECK(parse_tokenizer("wordpiece:v").type == TokenizerType::wordpiece);
  for (const char* wrong : {"", "bpe", "bpe:", "byte:x", "gpt2", "words:x"}) {
    const Error error = error_of([&] { static_cast<void>(parse_tokenizer(wrong)); });
    CHECK(error.exit_code() == 2);
    CHECK(error.id() == "bad-tokenizer");
  }
}

}  // namespace colossal::test
