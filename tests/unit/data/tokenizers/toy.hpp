// Which tokenizers do the tests use? Small ones that are written here, so that every id is known.
#pragma once

#include "../data_helpers.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "support/temp_dir.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::test {

using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

/// A code point below U+0800 as UTF-8.
inline std::string utf8(int code) {
  if (code < 0x80) {
    return std::string(1, static_cast<char>(code));
  }
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// GPT-2's printable character of a byte.
inline std::string printable(int byte) {
  int others = 0;
  for (int b = 0; b <= byte; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (b == byte && itself) {
      return utf8(b);
    }
    others += itself ? 0 : 1;
  }
  return utf8(256 + others - 1);
}

/// The toy vocabulary: id b is byte b, then the results of three merges, then the end of text.
inline Json toy_vocabulary() {
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[printable(byte)] = byte;
  }
  vocabulary["he"] = 256;
  vocabulary["ll"] = 257;
  vocabulary["hell"] = 258;
  vocabulary["<|endoftext|>"] = 259;
  return vocabulary;
}

inline constexpr std::string_view kToyMerges = "#version: 0.2\nh e\nl l\nhe ll\n";

/// Writes the toy as GPT-2's two files and returns the folder.
inline std::string write_toy(const std::filesystem::path& folder,
                             std::string_view merges = kToyMerges) {
  write_file(folder, "vocab.json", toy_vocabulary().dump());
  write_file(folder, "merges.txt", merges);
  return folder.string();
}

/// A tokenizer.json of the toy; tests change parts of it.
inline Json toy_json() {
  Json json;
  json["added_tokens"] = {{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}}};
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "ByteLevel"}};
  Json vocabulary = toy_vocabulary();
  vocabulary.erase("<|endoftext|>");
  json["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", "l l", "he ll"}}};
  return json;
}

inline std::unique_ptr<Tokenizer> open_at(TokenizerType type, const std::string& path) {
  return open_tokenizer({.type = type, .path = path});
}

inline Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace colossal::test
