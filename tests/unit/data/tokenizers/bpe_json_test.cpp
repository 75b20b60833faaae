// Is every component of tokenizer.json either done as Python does it or refused by its name?
#include "toy.hpp"

namespace colossal::test {

using Catch::Matchers::Contains;

namespace {

constexpr const char* kBlock = "\xE2\x96\x81";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::unique_ptr<Tokenizer> open_json(const Json& json) {
  const TempDir folder;
  return open_at(TokenizerType::bpe, write_file(folder.path(), "tokenizer.json", json.dump()));
}

Error json_error(const Json& json) {
  return error_of([&] { open_json(json); });
}

void require_unsupported(const Json& json, const std::string& what) {
  const Error error = json_error(json);
  CHECK(error.exit_code() == 4);
  CHECK(error.id() == "tokenizer-unsupported");
  CHECK_THAT(error.what(), Contains("'" + what + "' is not supported"));
}

/// Characters a, b, a block before b and bytes; merges "_ b".
Json character_json() {
  Json json;
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"a", 3}, {"b", 4}, {kBlock, 5}};
  vocabulary[std::string(kBlock) + "b"] = 6;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[fmt::format("<0x{:02X}>", byte)] = 7 + byte;
  }
  json["added_tokens"] = {{{"id", 2}, {"content", "</s>"}, {"normalized", false}}};
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", kBlock}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlock}}}}};
  json["model"] = {{"type", "BPE"},
                   {"vocab", vocabulary},
                   {"byte_fallback", true},
                   {"unk_token", "<unk>"},
                   {"merges", {std::string(kBlock) + " b"}}};
  return json;
}

}  // namespace

TEST_CASE("a tokenizer.json says the same as the two files", "[tokenizers]") {
  const auto tokenizer = open_json(toy_json());
  CHECK(encode(*tokenizer, "hello<|endoftext|> he") == Ids{258, 'o', 259, ' ', 256});
  CHECK(tokenizer->size() == 260);
  Json pairs = toy_json();
  pairs["model"]["merges"] = Json::parse(R"([["h", "e"], ["l", "l"], ["he", "ll"]])");
  CHECK(encode(*open_json(pairs), "hello") == Ids{258, 'o'});
  const TempDir folder;
  write_file(folder.path(), "tokenizer.json", toy_json().dump());
  CHECK(open_at(TokenizerType::bpe, folder.path().string())->fingerprint() ==
        tokenizer->fingerprint());
}

TEST_CASE("a prefix space is added before every piece that has none", "[tokenizers]") {
  Json json = toy_json();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = open_json(json);
  CHECK(encode(*tokenizer, "he") == Ids{' ', 256});
  CHECK(encode(*tokenizer, " he") == Ids{' ', 256});
  CHECK(encode(*tokenizer, "a<|endoftext|>a") == Ids{' ', 'a', 259, ' ', 'a'});
}

TEST_CASE("LLaMA-3: its own pattern, and whole words before merges", "[tokenizers]") {
  Json json = toy_json();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", kLlama3}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  json["model"]["vocab"]["-hell"] = 260;  // no merge leads here
  CHECK(encode(*open_json(json), "-hell") == Ids{'-', 258});
  json["model"]["ignore_merges"] = true;
  CHECK(encode(*open_json(json), "-hell") == Ids{260});
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+";
  require_unsupported(json, "\\w+");
}

TEST_CASE("LLaMA-2: blocks for spaces, bytes for what has no token", "[tokenizers]") {
  const auto tokenizer = open_json(character_json());
  CHECK(encode(*tokenizer, "b a") == Ids{6, 5, 3});
  CHECK(encode(*tokenizer, "c") == Ids{5, 7 + 'c'});
  CHECK(encode(*tokenizer, "\xC3\xA9") == Ids{5, 7 + 0xC3, 7 + 0xA9});
  CHECK(encode(*tokenizer, "a</s>b") == Ids{5, 3, 2, 6});
  for (const std::string text : {"b a", " a  b", "c\xC3\xA9\n", "\xFF", ""}) {
    CHECK(tokenizer->decode(encode(*tokenizer, text)) == text);
  }
  CHECK(require_eod(*tokenizer) == 2);
  CHECK(tokenizer->boundary("a b", 0) == 3);
}

TEST_CASE("Metaspace puts the block where its scheme says", "[tokenizers]") {
  Json json = character_json();
  json["normalizer"] = nullptr;
  const auto ids = [&](const char* scheme, const std::string& text) {
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", kBlock}, {"prepend_scheme", scheme}};
    return encode(*open_json(json), text);
  };
  CHECK(ids("always", "a</s>b") == Ids{5, 3, 2, 6});
  CHECK(ids("first", "a</s>b") == Ids{5, 3, 2, 4});
  CHECK(ids("never", "a</s>b") == Ids{3, 2, 4});
  CHECK(ids("always", " b") == Ids{6});
  json["pre_tokenizer"]["prepend_scheme"] = "sometimes";
  require_unsupported(json, "sometimes");
}

TEST_CASE("without byte_fallback there must be an unknown token", "[tokenizers]") {
  Json json = character_json();
  json["model"]["byte_fallback"] = false;
  CHECK(encode(*open_json(json), "cca") == Ids{5, 0, 0, 3});
  json["model"]["fuse_unk"] = true;
  CHECK(encode(*open_json(json), "cca") == Ids{5, 0, 3});
  json["model"]["unk_token"] = nullptr;
  CHECK_THAT(json_error(json).what(), Contains("neither byte_fallback nor an unk_token"));
}

TEST_CASE("added tokens take the longest match and the space they ask for", "[tokenizers]") {
  Json json = toy_json();
  json["added_tokens"].push_back({{"id", 260}, {"content", "<m>"}, {"lstrip", true}});
  json["added_tokens"].push_back({{"id", 261}, {"content", "<m>x"}, {"rstrip", true}});
  const auto tokenizer = open_json(json);
  CHECK(encode(*tokenizer, "a \n<m> b") == Ids{'a', 260, ' ', 'b'});
  CHECK(encode(*tokenizer, "a <m>x\xE3\x80\x80 b") == Ids{'a', ' ', 261, 'b'});
  CHECK(tokenizer->boundary("a b", 0) == 3);  // the token could reach over the space
}

TEST_CASE("a tokenizer.json loads whatever it puts around a text", "[tokenizers]") {
  const Ids plain = encode(*open_json(toy_json()), "hello");
  for (const char* processor :
       {R"({"type": "BertProcessing", "cls": ["[CLS]"], "sep": ["[SEP]"]})",
        R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]})",
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {}})",
        R"({"type": "of a later version"})",
        R"("no mapping")"}) {
    INFO(processor);
    Json json = toy_json();
    json["post_processor"] = Json::parse(processor);
    CHECK(encode(*open_json(json), "hello") == plain);
  }
}

TEST_CASE("unknown components are refused by name", "[tokenizers]") {
  const auto with = [](const char* part, Json value) {
    Json json = toy_json();
    json[part] = std::move(value);
    return json;
  };
  require_unsupported(with("pre_tokenizer", {{"type", "Whitespace"}}), "Whitespace");
  require_unsupported(with("normalizer", {{"type", "NFC"}}), "NFC");
  Json unigram = toy_json();
  unigram["model"]["type"] = "Unigram";
  require_unsupported(unigram, "Unigram");
  Json dropout = toy_json();
  dropout["model"]["dropout"] = 0.1;
  require_unsupported(dropout, "0.1");
  Json suffix = toy_json();
  suffix["model"]["end_of_word_suffix"] = "</w>";
  require_unsupported(suffix, "</w>");
  Json word = toy_json();
  word["added_tokens"][0]["single_word"] = true;
  require_unsupported(word, "single_word: true");
  Json normalized = character_json();
  normalized["added_tokens"][0]["normalized"] = true;
  require_unsupported(normalized, "normalized: true");
}

TEST_CASE("a file of another kind is refused", "[tokenizers]") {
  const TempDir folder;
  const auto error_with = [&](const std::string& text) {
    return error_of(
        [&] { open_at(TokenizerType::bpe, write_file(folder.path(), "tokenizer.json", text)); });
  };
  CHECK_THAT(error_with("{\"a\":\n}").what(), Contains("line 2"));
  CHECK_THAT(error_with("{}").what(), Contains("tokenizer.json.model is missing, not a mapping"));
  CHECK_THAT(error_with("[]").what(), Contains("not a mapping"));
  Json merge = toy_json();
  merge["model"]["merges"] = Json::parse(R"([["h", "e", "l"]])");
  CHECK_THAT(json_error(merge).what(), Contains("model.merges[0] has 3 parts"));
  merge["model"]["merges"] = {"x y"};
  CHECK_THAT(json_error(merge).what(),
             Contains("model.merges[0]: merge 'x y' needs the token 'xy'"));
}

}  // namespace colossal::test
