// What do the files of a WordPiece tokenizer say?
#pragma once

#include "data/tokenizers/vocabulary.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace colossal::detail {

/// Rules and tables of one tokenizer (optimizers-and-recipes 7.5).
struct WordPieceSpec {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;
  std::string fingerprint;
  TokenId unknown = 0;
  std::string continuation = "##";  ///< in front of pieces that continue a word
  std::size_t longest_word = 100;   ///< characters; longer words are unknown
  bool clean_text = true;           ///< drop control characters
  bool separate_cjk = true;         ///< each ideograph is a word
  bool strip_accents = false;
  bool lowercase = false;
};

/// Reads vocab.txt or tokenizer.json. Errors: as open_tokenizer().
[[nodiscard]] WordPieceSpec read_wordpiece(const std::filesystem::path& path);

}  // namespace colossal::detail
