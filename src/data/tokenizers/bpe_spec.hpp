// What do the files of a byte-pair tokenizer say, whichever their format?
#pragma once

#include "data/tokenizers/merges.hpp"
#include "data/tokenizers/split.hpp"
#include "data/tokenizers/vocabulary.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace colossal::detail {

/// Merge of two tokens; its rank is its place in the list.
struct BpeMerge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

/// When a "\u2581" is put in front of a text made of characters.
enum class Prepend : std::uint8_t {
  never,
  always,           ///< normalizer Prepend: before every piece
  unless_there,     ///< Metaspace `always`: before every piece that has none
  first_piece_only  ///< Metaspace `first`: before the text's first piece
};

/// Rules and tables of one tokenizer.
struct BpeSpec {
  Vocabulary vocabulary;  ///< byte level: tokens as the bytes they stand for
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
  std::string fingerprint;
  bool byte_level = true;                   ///< false: symbols are characters
  bool ignore_merges = false;               ///< a word that is a token is not taken apart
  std::size_t most_symbols = kMostSymbols;  ///< of one word; at most kMostSymbols

  SplitPattern pattern = SplitPattern::gpt2;  ///< byte level only
  bool prefix_space = false;                  ///< byte level only

  Prepend prepend = Prepend::never;  ///< characters only, as all below
  bool block_for_space = false;      ///< spaces are written as "\u2581"
  bool split_words = false;          ///< merge word by word
  bool byte_fallback = false;        ///< characters without a token become bytes
  std::optional<TokenId> unknown;    ///< else this
  bool fuse_unknown = false;
};

/// Reads GPT-2's files: a folder with vocab.json and merges.txt (or encoder.json and vocab.bpe),
/// one of these files, or a tokenizer.json. Errors: as open_tokenizer().
[[nodiscard]] BpeSpec read_bpe(const std::filesystem::path& path);

/// The tokenizer of such files. Errors: data "tokenizer-file" if not every text would have ids.
[[nodiscard]] std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeSpec spec);

/// Reads a tokenizer.json of model type BPE.
[[nodiscard]] BpeSpec read_bpe_json(const std::filesystem::path& path);

/// Appends the merge of two tokens as written in a file. Errors: data "tokenizer-file" if one of
/// them, or both joined, is no token.
void add_merge(BpeSpec& spec,
               std::string_view left,
               std::string_view right,
               std::string_view place);

/// "\u0120the" -> " the": GPT-2's printable stand-ins back to bytes; nothing if a character is
/// none.
[[nodiscard]] std::optional<std::string> from_printable(std::string_view token);

}  // namespace colossal::detail
