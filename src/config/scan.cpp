// How are broken bytes, tabs, quotes and brackets found before parsing?
#include "config/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace colossal::detail {

std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned lead = byte(i);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) {
    return 0;
  }
  for (std::size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  const unsigned second = byte(i + 1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

namespace {

Origin at(const Origin& base, int line, int col) {
  Origin origin = base;
  if (base.line == 0) {
    origin.line = line;
    origin.col = col;
  }
  return origin;
}

/// Reports the first malformed or control byte.
void check_bytes(std::string_view text, const Origin& base, Report& report) {
  int line = 1;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const Origin origin = at(base, line, static_cast<int>(i - line_start) + 1);
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      report.error("not-utf8", "", origin, fmt::format("byte 0x{:02x} is not valid UTF-8", c)).fix =
          "save the file as UTF-8";
      return;
    }
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      report
          .error("control-character",
                 "",
                 origin,
                 fmt::format("control character 0x{:02x} in the file", c))
          .fix = "remove it";
      return;
    }
    if (c == '\n') {
      ++line;
      line_start = i + 1;
    }
    i += length;
  }
}

/// Walks the tokens of YAML just closely enough to know where quotes, brackets and indentation are.
class Scanner {
 public:
  Scanner(std::string_view text, const Origin& base, bool json, Report& report)
      : text_(text), base_(base), json_(json), report_(report) {}

  void run() {
    while (at_ < text_.size()) {
      if (line_start_ == at_) {
        start_line();
      } else {
        step();
      }
    }
    if (!brackets_.empty()) {
      report_unclosed();
    }
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n';
  }
  [[nodiscard]] Origin here() const {
    return at(base_, line_, static_cast<int>(at_ - line_start_) + 1);
  }
  void newline() {
    ++at_;
    ++line_;
    line_start_ = at_;
  }

  /// Indentation: tabs are reported, the depth is kept for block scalars.
  void start_line() {
    std::size_t i = at_;
    std::optional<std::size_t> tab;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) {
      tab = text_[i] == '\t' && !tab ? i : tab;
      ++i;
    }
    const bool blank = i == text_.size() || text_[i] == '\n' || text_[i] == '#';
    if (tab && !blank && !json_) {
      at_ = *tab;
      report_.error("tab-indent", "", here(), "a tab in the indentation").fix =
          "indent with spaces; YAML forbids tabs there";
    }
    indent_ = i - line_start_;
    at_ = i;
    token_start_ = true;
    if (i == text_.size()) {
      return;
    }
    step();
  }

  void step() {
    const char c = peek();
    const bool spaced = at_ == line_start_ || text_[at_ - 1] == ' ' || text_[at_ - 1] == '\t';
    if (c == '\n') {
      newline();
    } else if (c == '#' && spaced) {
      skip_line();
    } else if (token_start_ && (c == '"' || c == '\'')) {
      quote(c);
    } else if (token_start_ && brackets_.empty() && (c == '|' || c == '>')) {
      block_scalar();
    } else if (!brackets_.empty() && c == '$' && peek(1) == '{') {
      unquoted_use();
    } else if ((token_start_ || !brackets_.empty()) && (c == '[' || c == '{')) {
      brackets_.emplace_back(c, here());
      token_start_ = true;
      ++at_;
    } else if (!brackets_.empty() && (c == ']' || c == '}')) {
      close_bracket(c);
    } else {
      plain(c);
    }
  }

  /// `${...}` in a flow mapping or list: its brace would open a mapping.
  void unquoted_use() {
    const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
    const std::size_t close = text_.find('}', at_);
    const std::size_t end = close < line_end ? close + 1 : line_end;
    Diagnostic& error = report_.error(
        "interp-quote",
        "",
        here(),
        fmt::format("'{}' between brackets must be in quotes", text_.substr(at_, end - at_)));
    error.why = "inside {...} and [...] a brace opens a mapping";
    error.fix = fmt::format("write \"{}\"", text_.substr(at_, end - at_));
    token_start_ = false;
    at_ = end;
  }

  /// Reports the innermost open bracket and ends the scan: the rest cannot be judged.
  void report_unclosed() {
    const auto& [open, origin] = brackets_.back();
    report_.error("unclosed-bracket", "", origin, fmt::format("'{}' is never closed", open)).fix =
        fmt::format("add '{}'", open == '[' ? ']' : '}');
    brackets_.clear();
    at_ = text_.size();
  }

  void close_bracket(char c) {
    if ((brackets_.back().first == '[') != (c == ']')) {
      report_unclosed();
      return;
    }
    brackets_.pop_back();
    token_start_ = false;
    ++at_;
  }

  void plain(char c) {
    const char next = peek(1);
    const bool spaced = next == ' ' || next == '\n' || next == '\t';
    const bool flow = !brackets_.empty();
    if (token_start_ && (c == '&' || c == '*' || c == '!')) {
      while (peek() != ' ' && peek() != '\n' &&
             !(flow && (peek() == ',' || peek() == ']' || peek() == '}'))) {
        ++at_;  // an anchor, alias or tag; the value follows
      }
      return;
    }
    const bool separator = (flow && c == ',') || (c == ':' && (spaced || after_quote_)) ||
                           ((c == '-' || c == '?') && token_start_ && spaced);
    token_start_ = separator || (token_start_ && (c == ' ' || c == '\t'));
    after_quote_ = false;
    ++at_;
  }

  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      ++at_;
    }
  }

  /// A quoted scalar. One that spans lines and is followed by text was closed by the quote of
  /// another value.
  void quote(char mark) {
    const Origin opened = here();
    const int first_line = line_;
    bool closed = false;
    ++at_;
    while (at_ < text_.size() && !closed) {
      const char c = text_[at_];
      if (c == '\n') {
        newline();
      } else if (c == '\\' && mark == '"') {
        at_ += peek(1) == '\n' ? 1U : 2U;
      } else if (c == mark && mark == '\'' && peek(1) == '\'') {
        at_ += 2;
      } else {
        closed = c == mark;
        ++at_;
      }
    }
    const std::string_view after = " \n,]}:#\t";
    const bool stolen = line_ != first_line && after.find(peek()) == std::string_view::npos;
    if (!closed || stolen) {
      report_.error("unclosed-quote", "", opened, fmt::format("the quote {} is never closed", mark))
          .fix = fmt::format("add the closing {} on the same line", mark);
      brackets_.clear();  // the rest cannot be judged
      at_ = text_.size();
    }
    token_start_ = false;
    after_quote_ = true;
  }

  /// Skips the lines of a `|` or `>` scalar: all that are blank or deeper than the line that opened
  /// it.
  void block_scalar() {
    const std::size_t parent = indent_;
    skip_line();
    while (at_ < text_.size()) {
      const std::size_t i = text_.find_first_not_of(' ', at_ + 1);
      const bool blank = i == std::string_view::npos || text_[i] == '\n';
      if (!blank && i - (at_ + 1) <= parent) {
        return;
      }
      newline();
      skip_line();
    }
  }

  std::string_view text_;
  Origin base_;
  bool json_;
  Report& report_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::size_t indent_ = 0;
  int line_ = 1;
  bool token_start_ = true;
  bool after_quote_ = false;
  std::vector<std::pair<char, Origin>> brackets_;
};

}  // namespace

std::string scan_yaml(std::string_view text, const Origin& base, bool json, Report& report) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  std::string clean;
  clean.reserve(text.size() + 1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') {
      clean += text[i];
    }
  }
  const std::size_t before = report.items().size();
  check_bytes(clean, base, report);
  if (report.items().size() == before) {
    Scanner(clean, base, json, report).run();
  }
  return clean;
}

}  // namespace colossal::detail
