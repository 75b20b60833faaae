// Where do words begin and end before byte-pair merging? Hand-written scanners for the patterns of
// GPT-2, LLaMA-3 and Qwen2, which std::regex cannot express.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace colossal::detail {

/// A known pre-tokeniser pattern.
enum class SplitPattern : std::uint8_t { gpt2, llama3, qwen2 };

/// The pattern whose regular expression is written like this in tokenizer.json.
[[nodiscard]] std::optional<SplitPattern> known_pattern(std::string_view regex);

/// End of the word that begins at `begin` (below text.size()). Words cover the whole text; bytes
/// that are no UTF-8 count as signs.
[[nodiscard]] std::size_t word_end(SplitPattern pattern, std::string_view text, std::size_t begin);

}  // namespace colossal::detail
