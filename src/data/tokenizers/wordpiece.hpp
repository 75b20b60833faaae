// Which tokenizer does BERT use? WordPiece: words of normalised text, cut greedily.
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <memory>

namespace colossal {

/// Tokenizer `wordpiece`. `path`: BERT's vocab.txt (one token a line), a tokenizer.json of model
/// type WordPiece, or a folder with one of them. A vocab.txt without any capital letter is uncased:
/// text is lower-cased and loses its accents. Ids are those of Python's `tokenizers` without
/// special tokens. Errors: as open_tokenizer().
[[nodiscard]] std::unique_ptr<Tokenizer> make_wordpiece_tokenizer(const TokenizerConfig& config);

}  // namespace colossal
