// What is the simplest tokenizer? One id a byte.
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <memory>

namespace colossal {

/// Tokenizer `byte`: ids are the bytes 0 to 255; byte 0 ends a document.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer(const TokenizerConfig& config);

}  // namespace colossal
