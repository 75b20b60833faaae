// How are GPT-2's vocab.json and merges.txt read?
#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/tokenizers/bpe_spec.hpp"
#include "data/tokenizers/json_file.hpp"
#include "data/tokenizers/unicode.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;

/// The two names of GPT-2's pair of files.
struct FilePair {
  std::string_view vocabulary;
  std::string_view merges;
};
constexpr std::array<FilePair, 2> kPairs = {
    {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}}};
constexpr std::string_view kTokenizerJson = "tokenizer.json";

/// Byte of each stand-in character below 324, -1 for none (optimizers-and-recipes 7.5).
constexpr std::array<int, 324> kByteOf = [] {
  std::array<int, 324> bytes = {};
  bytes.fill(-1);
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes[itself ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return bytes;
}();

void read_vocab_json(const fs::path& path, const std::string& text, Vocabulary& vocabulary) {
  const nlohmann::json json = parse_tokenizer_json(text, path);
  Vocabulary written;
  read_vocabulary(JsonValue(json, path.string()), written);
  for (std::size_t id = 0; id < written.tokens().size(); ++id) {
    const std::string& token = written.tokens()[id];
    if (!token.empty()) {
      vocabulary.add(
          from_printable(token).value_or(token), static_cast<std::int64_t>(id), path.string());
    }
  }
}

void read_merges(const fs::path& path, std::string_view text, BpeSpec& spec) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.starts_with("#version")) {
      continue;
    }
    const std::string place = fmt::format("{}:{}", path.string(), number);
    const std::size_t space = line.find(' ');
    check(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
          ErrorKind::data,
          "tokenizer-file",
          "{}: '{}' is no merge; a line has two tokens with one space between them",
          place,
          line);
    add_merge(spec, line.substr(0, space), line.substr(space + 1), place);
  }
}

/// GPT-2's end of text stands in its vocabulary but not in its merges: it is an added token.
void add_end_of_text(BpeSpec& spec) {
  constexpr std::string_view kEnd = "<|endoftext|>";
  if (const auto id = spec.vocabulary.find(kEnd)) {
    spec.added.push_back({std::string(kEnd), *id});
  }
}

BpeSpec read_pair(const fs::path& folder, const FilePair& names) {
  const fs::path vocabulary = folder / names.vocabulary;
  const fs::path merges = folder / names.merges;
  const std::string vocabulary_text = read_tokenizer_file(vocabulary);
  const std::string merges_text = read_tokenizer_file(merges);
  BpeSpec spec;
  read_vocab_json(vocabulary, vocabulary_text, spec.vocabulary);
  read_merges(merges, merges_text, spec);
  add_end_of_text(spec);
  spec.fingerprint = sha256("bpe " + sha256(vocabulary_text) + sha256(merges_text));
  return spec;
}

}  // namespace

std::optional<std::string> from_printable(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const Character character = character_at(token, at);
    const auto code = static_cast<std::size_t>(character.code);
    if (character.code < 0 || code >= kByteOf.size() || kByteOf[code] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOf[code]));
    at += character.length;
  }
  return bytes;
}

void add_merge(BpeSpec& spec,
               std::string_view left,
               std::string_view right,
               std::string_view place) {
  const auto id_of = [&](const std::string& written) {
    const std::optional<std::string> bytes =
        spec.byte_level ? from_printable(written) : std::optional(written);
    const std::optional<TokenId> id =
        bytes ? spec.vocabulary.find(*bytes) : std::optional<TokenId>();
    check(id.has_value(),
          ErrorKind::data,
          "tokenizer-file",
          "{}: merge '{} {}' needs the token '{}', which is not in the vocabulary; do both files "
          "belong together?",
          place,
          left,
          right,
          written);
    return *id;
  };
  const std::string a(left);
  const std::string b(right);
  spec.merges.push_back({id_of(a), id_of(b), id_of(a + b)});
}

namespace {

/// One of the two files of a pair, or a tokenizer.json.
BpeSpec read_bpe_file(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const FilePair& pair : kPairs) {
    if (name == pair.vocabulary || name == pair.merges) {
      return read_pair(path.parent_path(), pair);
    }
  }
  return read_bpe_json(path);
}

}  // namespace

BpeSpec read_bpe(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    return read_bpe_file(path);
  }
  for (const FilePair& pair : kPairs) {
    if (fs::exists(path / pair.vocabulary) || fs::exists(path / pair.merges)) {
      return read_pair(path, pair);
    }
  }
  check(fs::exists(path / kTokenizerJson),
        ErrorKind::data,
        "file-not-found",
        "folder '{}' holds no tokenizer: expected vocab.json and merges.txt, or tokenizer.json",
        path.string());
  return read_bpe_json(path / kTokenizerJson);
}

}  // namespace colossal::detail
