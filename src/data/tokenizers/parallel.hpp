// How is much text encoded by several threads?
#pragma once

#include "data/tokenizers/tokenizer.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace colossal {

/// Ids of each text, in order; the texts are shared out among `num_threads` threads, the calling
/// one included. The first exception of a thread is rethrown.
[[nodiscard]] std::vector<std::vector<TokenId>> encode_all(const Tokenizer& tokenizer,
                                                           std::span<const std::string_view> texts,
                                                           std::size_t num_threads);

/// Cuts a text where the tokenizer allows it, into pieces of about 256 KiB: their ids one after
/// another are those of the whole.
[[nodiscard]] std::vector<std::string_view> cut_text(const Tokenizer& tokenizer,
                                                     std::string_view text);

}  // namespace colossal
