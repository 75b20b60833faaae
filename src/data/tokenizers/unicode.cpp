// How are the classes found? By utf8proc, with the few sets it does not know written out.
#include "data/tokenizers/unicode.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <utf8proc.h>

namespace colossal::detail {
namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

struct CodeRange {
  std::int32_t first;
  std::int32_t last;
};

template <std::size_t N>
bool contains(const std::array<CodeRange, N>& ranges, std::int32_t code) {
  return std::ranges::any_of(
      ranges, [code](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

constexpr std::array<CodeRange, 5> kWideSpaces = {
    {{0x0085, 0x0085}, {0x00A0, 0x00A0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}}};
constexpr std::array<CodeRange, 3> kMoreSpaces = {
    {{0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}}};
/// As in Python's tokenizers, whose fifth range begins 256 code points late.
constexpr std::array<CodeRange, 8> kCjk = {{{0x4E00, 0x9FFF},
                                            {0x3400, 0x4DBF},
                                            {0x20000, 0x2A6DF},
                                            {0x2A700, 0x2B73F},
                                            {0x2B740, 0x2B81F},
                                            {0x2B920, 0x2CEAF},
                                            {0xF900, 0xFAFF},
                                            {0x2F800, 0x2FA1F}}};

}  // namespace

Character character_at(std::string_view text, std::size_t at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    return {first, 1};
  }
  utf8proc_int32_t code = -1;
  const auto rest = static_cast<utf8proc_ssize_t>(text.size() - at);
  const utf8proc_ssize_t length = utf8proc_iterate(bytes_of(text) + at, rest, &code);
  return length > 0 ? Character{code, static_cast<std::size_t>(length)} : Character{-1, 1};
}

bool is_space(std::int32_t code) noexcept {
  if (code < 0x80) {
    return code == ' ' || (code >= '\t' && code <= '\r');
  }
  return contains(kWideSpaces, code) || contains(kMoreSpaces, code);
}

CharClass char_class(std::int32_t code) noexcept {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::number;
    default:
      return is_space(code) ? CharClass::space : CharClass::other;
  }
}

std::size_t space_before(std::string_view text, std::size_t end) noexcept {
  std::size_t begin = end;
  while (begin > 0) {
    std::size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
      --at;
    }
    const Character last = character_at(text, at);
    if (at + last.length != begin || !is_space(last.code)) {
      break;
    }
    begin = at;
  }
  return begin;
}

std::size_t space_after(std::string_view text, std::size_t begin) noexcept {
  while (begin < text.size()) {
    const Character next = character_at(text, begin);
    if (!is_space(next.code)) {
      break;
    }
    begin += next.length;
  }
  return begin;
}

bool is_control(std::int32_t code) noexcept {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(std::int32_t code) noexcept {
  if (code < 0x80) {
    return code > ' ' && code < 0x7F && char_class(code) == CharClass::other;
  }
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

bool is_nonspacing_mark(std::int32_t code) noexcept {
  return code >= 0x80 && utf8proc_category(code) == UTF8PROC_CATEGORY_MN;
}

bool is_cjk(std::int32_t code) noexcept {
  return code >= kCjk[1].first && contains(kCjk, code);
}

std::int32_t to_lower(std::int32_t code) noexcept {
  return utf8proc_tolower(code);
}

void append_utf8(std::int32_t code, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes = {};
  const utf8proc_ssize_t length = utf8proc_encode_char(code, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

std::u32string decompose(std::string_view text) {
  // Four code points a character is the most that canonical decomposition gives.
  std::u32string codes(4 * text.size() + 1, U'\0');
  const utf8proc_ssize_t length =
      utf8proc_decompose(bytes_of(text),
                         static_cast<utf8proc_ssize_t>(text.size()),
                         reinterpret_cast<utf8proc_int32_t*>(codes.data()),
                         static_cast<utf8proc_ssize_t>(codes.size()),
                         UTF8PROC_DECOMPOSE);
  check(length >= 0 && static_cast<std::size_t>(length) <= codes.size(),
        ErrorKind::internal,
        "unicode-decompose",
        "utf8proc cannot decompose {} bytes: {}",
        text.size(),
        utf8proc_errmsg(length));
  codes.resize(static_cast<std::size_t>(length));
  return codes;
}

}  // namespace colossal::detail
