// How are BERT's vocab.txt and a tokenizer.json of model type WordPiece read?
#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/tokenizers/json_file.hpp"
#include "data/tokenizers/unicode.hpp"
#include "data/tokenizers/wordpiece_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;

/// Tokens that stand for themselves in a vocab.txt.
constexpr std::array<std::string_view, 5> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

TokenId require_token(const WordPieceSpec& spec, std::string_view token, std::string_view place) {
  const std::optional<TokenId> id = spec.vocabulary.find(token);
  check(id.has_value(),
        ErrorKind::data,
        "tokenizer-file",
        "{}: the token '{}' is missing, so this is no vocabulary of WordPiece",
        place,
        token);
  return *id;
}

bool has_capitals(std::string_view token) {
  for (std::size_t at = 0; at < token.size();) {
    const Character character = character_at(token, at);
    at += character.length;
    if (character.code >= 0 && to_lower(character.code) != character.code) {
      return true;
    }
  }
  return false;
}

/// A word with a capital would always be unknown to such a vocabulary, so its text was lower-cased.
bool is_uncased(const Vocabulary& vocabulary) {
  return std::ranges::none_of(vocabulary.tokens(), [](const std::string& token) {
    const bool special = token.starts_with('[') && token.ends_with(']') && token.size() > 2;
    return !special && has_capitals(token);
  });
}

void read_lines(const fs::path& path, std::string_view text, Vocabulary& vocabulary) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, space_before(line, line.size()));
    const std::string place = fmt::format("{}:{}", path.string(), number + 1);
    check(!line.empty(),
          ErrorKind::data,
          "tokenizer-file",
          "{}: the line is empty; each line of a WordPiece vocabulary is a token",
          place);
    vocabulary.add(std::string(line), number++, place);
  }
}

WordPieceSpec read_vocab_txt(const fs::path& path) {
  const std::string text = read_tokenizer_file(path);
  WordPieceSpec spec;
  read_lines(path, text, spec.vocabulary);
  for (const std::string_view token : kSpecial) {
    const bool needed = token != "[PAD]" && token != "[MASK]";
    const auto id = needed ? std::optional(require_token(spec, token, path.string()))
                           : spec.vocabulary.find(token);
    if (id) {
      spec.added.push_back({std::string(token), *id});
    }
  }
  spec.unknown = *spec.vocabulary.find("[UNK]");
  spec.lowercase = is_uncased(spec.vocabulary);
  spec.strip_accents = spec.lowercase;
  spec.fingerprint = sha256("wordpiece " + sha256(text));
  return spec;
}

void read_normalizer(const JsonValue& normalizer, WordPieceSpec& spec) {
  if (!normalizer) {
    unsupported(normalizer, "null", "BertNormalizer");
  }
  if (normalizer["type"].text() != "BertNormalizer") {
    unsupported(normalizer, normalizer["type"].text(), "BertNormalizer");
  }
  spec.clean_text = normalizer["clean_text"].flag(true);
  spec.separate_cjk = normalizer["handle_chinese_chars"].flag(true);
  spec.lowercase = normalizer["lowercase"].flag(true);
  spec.strip_accents = normalizer["strip_accents"].flag(spec.lowercase);
}

/// `post_processor` is not read: it only puts special tokens around a text, which encode() does
/// not.
WordPieceSpec read_json(const fs::path& path) {
  const std::string text = read_tokenizer_file(path);
  const nlohmann::json json = parse_tokenizer_json(text, path);
  const JsonValue root(json, path.string());
  const JsonValue model = root["model"];
  const std::string type = model["type"].text("WordPiece");
  if (type != "WordPiece") {
    unsupported(model["type"], type, "WordPiece (BPE: data.tokenizer.type bpe)");
  }
  const JsonValue pre = root["pre_tokenizer"];
  if (!pre || pre["type"].text() != "BertPreTokenizer") {
    unsupported(pre, pre ? pre["type"].text() : "null", "BertPreTokenizer");
  }
  WordPieceSpec spec;
  read_normalizer(root["normalizer"], spec);
  read_vocabulary(model["vocab"], spec.vocabulary);
  spec.unknown = require_token(spec, model["unk_token"].text("[UNK]"), model.place());
  spec.continuation = model["continuing_subword_prefix"].text("##");
  if (model["max_input_chars_per_word"]) {
    spec.longest_word = static_cast<std::size_t>(model["max_input_chars_per_word"].number());
  }
  spec.added = read_added_tokens(root["added_tokens"], true, spec.vocabulary);
  spec.fingerprint = sha256("wordpiece " + sha256(text));
  return spec;
}

}  // namespace

WordPieceSpec read_wordpiece(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    return path.extension() == ".json" ? read_json(path) : read_vocab_txt(path);
  }
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    if (fs::exists(path / name)) {
      return read_wordpiece(path / name);
    }
  }
  fail(ErrorKind::data,
       "file-not-found",
       "folder '{}' holds no tokenizer: expected vocab.txt or tokenizer.json",
       path.string());
}

}  // namespace colossal::detail
