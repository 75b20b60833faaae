// Which kind of character is this? Classes of Unicode as the tokenizers' rules name them, from
// utf8proc's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace colossal::detail {

/// One character of a text.
struct Character {
  std::int32_t code = 0;   ///< code point; -1: a byte that is no UTF-8
  std::size_t length = 1;  ///< bytes
};

/// The character that begins at `at` (below text.size()). A byte that begins no well-formed
/// sequence is a character of its own.
[[nodiscard]] Character character_at(std::string_view text, std::size_t at) noexcept;

/// \p{L}, \p{N}, \s and the rest, bytes that are no UTF-8 included.
enum class CharClass : std::uint8_t { other, letter, number, space };
[[nodiscard]] CharClass char_class(std::int32_t code) noexcept;
/// White_Space of Unicode, what \s means in the patterns.
[[nodiscard]] bool is_space(std::int32_t code) noexcept;
/// Begin of the white space that ends at `end`.
[[nodiscard]] std::size_t space_before(std::string_view text, std::size_t end) noexcept;
/// End of the white space that begins at `begin`.
[[nodiscard]] std::size_t space_after(std::string_view text, std::size_t begin) noexcept;

/// Categories Cc, Cf, Cs, Co.
[[nodiscard]] bool is_control(std::int32_t code) noexcept;
/// Categories P*, and every ASCII character that is neither letter, digit, space nor control.
[[nodiscard]] bool is_punctuation(std::int32_t code) noexcept;
/// Category Mn: accents after canonical decomposition.
[[nodiscard]] bool is_nonspacing_mark(std::int32_t code) noexcept;
/// The ranges that BERT separates by spaces.
[[nodiscard]] bool is_cjk(std::int32_t code) noexcept;
/// Simple lower case.
[[nodiscard]] std::int32_t to_lower(std::int32_t code) noexcept;

/// Appends a code point as UTF-8.
void append_utf8(std::int32_t code, std::string& text);
/// Canonical decomposition (NFD) of well-formed UTF-8 as code points.
[[nodiscard]] std::u32string decompose(std::string_view text);

}  // namespace colossal::detail
