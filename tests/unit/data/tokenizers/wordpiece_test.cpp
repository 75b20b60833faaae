// Does WordPiece normalise, split and cut as BERT does?
#include "toy.hpp"

namespace colossal::test {

using Catch::Matchers::Contains;

namespace {

/// The head of bert-base-uncased's vocabulary with the ids of optimizers-and-recipes 7.5; the rest
/// is filled up.
std::string bert_vocabulary() {
  std::string text = "[PAD]\n";
  for (int i = 1; i < 8000; ++i) {
    const std::string line = i == 100    ? "[UNK]"
                             : i == 101  ? "[CLS]"
                             : i == 102  ? "[SEP]"
                             : i == 103  ? "[MASK]"
                             : i == 2088 ? "world"
                             : i == 7592 ? "hello"
                                         : "[unused" + std::to_string(i) + "]";
    text += line + "\n";
  }
  return text;
}

constexpr std::string_view kSmall =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\naffable\n,\n!\ncafe\n\xE4\xB8\xAD\n\xE6"
    "\x96\x87\na\n##b\n";

std::unique_ptr<Tokenizer> open_vocabulary(std::string_view text) {
  const TempDir folder;
  return open_at(TokenizerType::wordpiece, write_file(folder.path(), "vocab.txt", text));
}

Json small_json() {
  Json json;
  json["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", nullptr},
                        {"lowercase", false}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json["model"] = {{"type", "WordPiece"},
                   {"unk_token", "[UNK]"},
                   {"vocab", {{"[UNK]", 0}, {"Un", 1}, {"##able", 2}, {"caf\xC3\xA9", 3}}}};
  return json;
}

std::unique_ptr<Tokenizer> open_wordpiece_json(const Json& json) {
  const TempDir folder;
  return open_at(TokenizerType::wordpiece,
                 write_file(folder.path(), "tokenizer.json", json.dump()));
}

}  // namespace

TEST_CASE("BERT's ids of hello world", "[tokenizers]") {
  const auto tokenizer = open_vocabulary(bert_vocabulary());
  const Ids ids = encode(*tokenizer, "[CLS]Hello world[SEP]");
  CHECK(ids == Ids{101, 7592, 2088, 102});
  CHECK(tokenizer->size() == 8000);
  CHECK(require_eod(*tokenizer) == 102);
  CHECK(encode(*tokenizer, "[MASK] hello[SEP]") == Ids{103, 7592, 102});
  CHECK(tokenizer->decode(ids) == "[CLS] hello world [SEP]");
}

TEST_CASE("words are cut greedily, and a word that does not end is unknown", "[tokenizers]") {
  const auto tokenizer = open_vocabulary(kSmall);
  CHECK(encode(*tokenizer, "unaffable") == Ids{5, 6, 7});
  CHECK(encode(*tokenizer, "affable un") == Ids{8, 5});
  CHECK(encode(*tokenizer, "unx, un!") == Ids{1, 9, 5, 10});
  CHECK(encode(*tokenizer, "a" + std::string(99, 'b')).size() == 100);
  CHECK(encode(*tokenizer, "a" + std::string(100, 'b')) == Ids{1});  // more than 100 characters
  CHECK(tokenizer->decode(encode(*tokenizer, "unaffable, a!")) == "unaffable, a!");
}

TEST_CASE("a vocabulary without capitals lower-cases and strips accents", "[tokenizers]") {
  const auto uncased = open_vocabulary(kSmall);
  CHECK(encode(*uncased, "Caf\xC3\xA9 CAFE\xCC\x81") == Ids{11, 11});
  const auto cased = open_vocabulary(std::string(kSmall) + "Cafe\n");
  CHECK(encode(*cased, "Cafe cafe Caf\xC3\xA9") == Ids{16, 11, 1});
}

TEST_CASE("controls and broken bytes go, ideographs stand alone", "[tokenizers]") {
  const auto tokenizer = open_vocabulary(kSmall);
  CHECK(encode(*tokenizer, "u\x01n\xE2\x80\x8B \xFF un\xEF\xBF\xBD") == Ids{5, 5});
  CHECK(encode(*tokenizer, std::string("u\0n", 3)) == Ids{5});
  CHECK(encode(*tokenizer, "un\xE4\xB8\xAD\xE6\x96\x87un") == Ids{5, 12, 13, 5});
  CHECK(encode(*tokenizer, "un\xE3\x80\x80un\tun\xE2\x80\xA8un") == Ids{5, 5, 5, 5});
  CHECK(encode(*tokenizer, " \n ").empty());
}

TEST_CASE("a tokenizer.json states case and accents itself", "[tokenizers]") {
  Json json = small_json();
  CHECK(encode(*open_wordpiece_json(json), "Unable caf\xC3\xA9 un") == Ids{1, 2, 3, 0});
  json["normalizer"]["strip_accents"] = true;
  CHECK(encode(*open_wordpiece_json(json), "caf\xC3\xA9") == Ids{0});
  json["model"]["max_input_chars_per_word"] = 5;
  CHECK(encode(*open_wordpiece_json(json), "Unable") == Ids{0});
}

TEST_CASE("what a tokenizer.json puts around a text does not matter", "[tokenizers]") {
  Json json = small_json();
  json["post_processor"] =
      Json::parse(R"({"type": "BertProcessing", "cls": ["[CLS]"], "sep": ["[SEP]"]})");
  CHECK(encode(*open_wordpiece_json(json), "Unable") == Ids{1, 2});
}

TEST_CASE("wrong WordPiece files are refused", "[tokenizers]") {
  CHECK_THAT(error_of([] { open_vocabulary("[UNK]\n[CLS]\n\n[SEP]\n"); }).what(),
             Contains("vocab.txt:3: the line is empty"));
  CHECK_THAT(error_of([] { open_vocabulary("[UNK]\n[CLS]\na\na\n[SEP]\n"); }).what(),
             Contains("vocab.txt:4: token 'a' has ids 2 and 3"));
  const Error missing = error_of([] { open_vocabulary("[UNK]\n[CLS]\n"); });
  CHECK(missing.id() == "tokenizer-file");
  CHECK_THAT(missing.what(), Contains("'[SEP]' is missing"));
  const auto unsupported = [](const char* part, const Json& value) {
    Json json = small_json();
    json[part] = value;
    return std::string(error_of([&] { open_wordpiece_json(json); }).what());
  };
  CHECK_THAT(unsupported("normalizer", {{"type", "Lowercase"}}), Contains("'Lowercase'"));
  CHECK_THAT(unsupported("normalizer", nullptr), Contains("'null'"));
  CHECK_THAT(unsupported("pre_tokenizer", {{"type", "Whitespace"}}), Contains("'Whitespace'"));
  CHECK_THAT(unsupported("model", {{"type", "BPE"}}), Contains("data.tokenizer.type bpe"));
}

}  // namespace colossal::test
