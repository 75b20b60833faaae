// Which tokenizer do GPT-2, LLaMA and their kin use? Byte-pair encoding.
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <memory>

namespace colossal {

/// Tokenizer `bpe`. `path`: a folder with vocab.json and merges.txt (or GPT-2's encoder.json and
/// vocab.bpe, or tokenizer.json), or one of these files. Byte level as in GPT-2 and LLaMA-3, or
/// characters with "\u2581" for spaces as in LLaMA-2. Ids are those of Python's `tokenizers`
/// without special tokens. Errors: as open_tokenizer().
[[nodiscard]] std::unique_ptr<Tokenizer> make_bpe_tokenizer(const TokenizerConfig& config);

}  // namespace colossal
