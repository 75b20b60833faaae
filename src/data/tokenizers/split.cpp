// How does each alternative of the patterns look as code? In the order of the regular expression:
// the first one that matches takes the word.
#include "data/tokenizers/split.hpp"

#include "data/tokenizers/unicode.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::array<std::pair<std::string_view, SplitPattern>, 3> kPatterns = {{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     SplitPattern::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitPattern::qwen2},
}};
constexpr std::array<std::string_view, 7> kContractions = {"s", "t", "re", "ve", "m", "ll", "d"};
/// U+017F folds to s, the only letter beyond ASCII that the contractions match without case.
constexpr std::string_view kLongS = "\xC5\xBF";

/// A character with its class; past the end of the text it is a space of no length.
struct Sign {
  std::size_t length = 0;
  CharClass kind = CharClass::space;
};

/// Classes of ASCII, so that most of a text needs no look into the tables.
constexpr std::array<CharClass, 128> kAscii = [] {
  std::array<CharClass, 128> kinds = {};
  for (std::size_t c = 0; c < kinds.size(); ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      kinds[c] = CharClass::letter;
    } else if (c >= '0' && c <= '9') {
      kinds[c] = CharClass::number;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      kinds[c] = CharClass::space;
    }
  }
  return kinds;
}();

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] Sign sign(std::size_t at) const {
    if (at >= text_.size()) {
      return {};
    }
    const auto first = static_cast<unsigned char>(text_[at]);
    if (first < 0x80) {
      return {1, kAscii[first]};
    }
    const Character character = character_at(text_, at);
    return {character.length, char_class(character.code)};
  }

  /// End of the run of one class that begins at `at`, of at most `limit` characters.
  [[nodiscard]] std::size_t run(CharClass kind, std::size_t at, int limit = -1) const {
    for (Sign next = sign(at); limit != 0 && next.length > 0 && next.kind == kind; --limit) {
      at += next.length;
      next = sign(at);
    }
    return at;
  }

  [[nodiscard]] bool is(std::size_t at, char c) const {
    return at < text_.size() && text_[at] == c;
  }
  [[nodiscard]] bool line_end(std::size_t at) const { return is(at, '\n') || is(at, '\r'); }

  /// Bytes of the contraction after the apostrophe at `at`, 0 for none.
  [[nodiscard]] std::size_t contraction(std::size_t at, bool any_case) const {
    const std::string_view rest = text_.substr(at + 1);
    for (const std::string_view ending : kContractions) {
      const bool same =
          rest.size() >= ending.size() &&
          std::equal(ending.begin(), ending.end(), rest.begin(), [any_case](char a, char b) {
            return a == b || (any_case && b >= 'A' && b <= 'Z' && a == b - 'A' + 'a');
          });
      if (same) {
        return ending.size();
      }
    }
    return any_case && rest.starts_with(kLongS) ? kLongS.size() : 0;
  }

  /// `\s+(?!\S)|\s+`: white space leaves its last character to the word that follows.
  [[nodiscard]] std::size_t white_space(std::size_t begin) const {
    std::size_t last = begin;
    std::size_t end = begin;
    for (Sign next = sign(end); next.length > 0 && next.kind == CharClass::space;
         next = sign(end)) {
      last = end;
      end += next.length;
    }
    return end == text_.size() || last == begin ? end : last;
  }

  /// `\s*[\r\n]+`: end of the last line end within the white space at `begin`; `begin` if there is
  /// none.
  [[nodiscard]] std::size_t lines(std::size_t begin) const {
    std::size_t found = begin;
    std::size_t at = begin;
    for (Sign next = sign(at); next.length > 0 && next.kind == CharClass::space; next = sign(at)) {
      at += next.length;
      found = line_end(at - next.length) ? at : found;
    }
    return found;
  }

 private:
  std::string_view text_;
};

std::size_t gpt2_end(const Scanner& scan, std::size_t begin) {
  if (scan.is(begin, '\'')) {
    if (const std::size_t length = scan.contraction(begin, false)) {
      return begin + 1 + length;
    }
  }
  const std::size_t first = scan.is(begin, ' ') ? begin + 1 : begin;
  const Sign sign = scan.sign(first);
  if (sign.kind != CharClass::space) {
    return scan.run(sign.kind, first);
  }
  return scan.white_space(begin);
}

std::size_t llama3_end(const Scanner& scan, std::size_t begin, int max_digits) {
  const bool apostrophe = scan.is(begin, '\'');
  const std::size_t contraction = apostrophe ? scan.contraction(begin, true) : 0;
  if (contraction > 0) {
    return begin + 1 + contraction;
  }
  const Sign first = scan.sign(begin);
  if (first.kind == CharClass::letter) {
    return scan.run(CharClass::letter, begin);
  }
  if (first.kind == CharClass::number) {
    return scan.run(CharClass::number, begin, max_digits);
  }
  const std::size_t second = begin + first.length;
  if (!scan.line_end(begin) && scan.sign(second).kind == CharClass::letter) {
    return scan.run(CharClass::letter, second);
  }
  const std::size_t signs = scan.is(begin, ' ') ? second : begin;
  std::size_t end = scan.run(CharClass::other, signs);
  if (end > signs) {
    while (scan.line_end(end)) {
      ++end;
    }
    return end;
  }
  const std::size_t lines = scan.lines(begin);
  return lines > begin ? lines : scan.white_space(begin);
}

}  // namespace

std::optional<SplitPattern> known_pattern(std::string_view regex) {
  for (const auto& [text, pattern] : kPatterns) {
    if (text == regex) {
      return pattern;
    }
  }
  return std::nullopt;
}

std::size_t word_end(SplitPattern pattern, std::string_view text, std::size_t begin) {
  const Scanner scan(text);
  switch (pattern) {
    case SplitPattern::gpt2:
      return gpt2_end(scan, begin);
    case SplitPattern::llama3:
      return llama3_end(scan, begin, 3);
    case SplitPattern::qwen2:
      return llama3_end(scan, begin, 1);
  }
  return text.size();
}

}  // namespace colossal::detail
