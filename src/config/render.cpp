// How does a diagnostic look to a human (config-and-cli section 4)?
#include "config/flatten.hpp"
#include "config/load.hpp"
#include "config/scan.hpp"
#include "config/tree.hpp"
#include "core/color.hpp"
#include "core/system.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <system_error>

namespace colossal {
namespace {

/// Lines of the files that diagnostics point at, each file read once.
class Sources {
 public:
  /// Line `number` (1-based) of `file`; empty if it cannot be read.
  [[nodiscard]] const std::string& line(const std::string& file, int number) {
    static const std::string none;
    auto [it, fresh] = files_.try_emplace(file);
    if (fresh) {
      read(file, it->second);
    }
    const auto index = static_cast<std::size_t>(number - 1);
    return index < it->second.size() ? it->second[index] : none;
  }

 private:
  static void read(const std::string& file, std::vector<std::string>& lines) {
    std::error_code ignored;
    std::istringstream stream(file == detail::kStdinName ? stdin_text().value_or("")
                                                         : read_file(file, ignored).value_or(""));
    for (std::string text; std::getline(stream, text);) {
      if (lines.empty() && text.starts_with("\xEF\xBB\xBF")) {
        text.erase(0, 3);
      }
      while (!text.empty() && text.back() == '\r') {
        text.pop_back();
      }
      clean(text);
      lines.push_back(text);
    }
  }

  /// Terminals must not interpret what a broken file contains, and a tab would shift the caret.
  static void clean(std::string& text) {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = detail::utf8_length(text, i);
      if (length == 0) {
        text[i] = '?';
      } else if (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7F) {
        text[i] = ' ';
      }
      i += std::max<std::size_t>(length, 1);
    }
  }

  std::map<std::string, std::vector<std::string>> files_;
};

/// End of the token that starts at `begin`: a quoted scalar, or up to a separator.
std::size_t token_end(const std::string& line, std::size_t begin) {
  const char first = line[begin];
  if (first == '"' || first == '\'') {
    const std::size_t close = line.find(first, begin + 1);
    return close == std::string::npos ? line.size() : close + 1;
  }
  if (first == '[' || first == '{') {
    return begin + 1;
  }
  const std::size_t end = line.find_first_of(" ,]}:#", begin + 1);
  return end == std::string::npos ? line.size() : end;
}

/// Columns on screen of a piece of UTF-8.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

/// Byte where `columns` characters of `text` end.
std::size_t end_of(std::string_view text, std::size_t columns) {
  std::size_t i = 0;
  for (; i < text.size() && columns > 0; --columns) {
    i += std::max<std::size_t>(detail::utf8_length(text, i), 1);
  }
  return std::min(i, text.size());
}

/// The part of a long line around byte `begin`; `begin` moves with it.
std::string cut_around(const std::string& line, std::size_t& begin) {
  constexpr std::size_t kShown = 200;
  constexpr std::size_t kBefore = 60;
  constexpr std::size_t kAfter = 100;
  const std::string_view view = line;
  if (width(view) <= kShown) {
    return line;
  }
  const std::size_t before = width(view.substr(0, begin));
  const std::size_t first = before <= kBefore ? 0 : end_of(view, before - kBefore);
  const std::size_t last = begin + end_of(view.substr(begin), kAfter);
  const std::string left = first > 0 ? "... " : "";
  const std::string text = left + line.substr(first, last - first);
  begin = begin - first + left.size();
  return last < line.size() ? text + " ..." : text;
}

/// Colours text by severity, or leaves it as it is.
class Brush {
 public:
  explicit Brush(bool colored) : colored_(colored) {}

  [[nodiscard]] std::string operator()(const std::string& text,
                                       Diagnostic::Severity severity) const {
    return colored_ ? painted(text, paint_of(severity)) : text;
  }

 private:
  static Paint paint_of(Diagnostic::Severity severity) {
    switch (severity) {
      case Diagnostic::Severity::error:
        return Paint::error;
      case Diagnostic::Severity::warning:
        return Paint::warning;
      case Diagnostic::Severity::note:
        break;
    }
    return Paint::note;
  }

  bool colored_;
};

std::string source_lines(const Diagnostic& item, Sources& sources, const Brush& brush) {
  const Origin& origin = item.origin;
  const bool named = origin.file.starts_with("--") || origin.file.starts_with("<");
  if (origin.line <= 0 || (named && origin.file != detail::kStdinName)) {
    return "";
  }
  const std::string& whole = sources.line(origin.file, origin.line);
  auto begin = static_cast<std::size_t>(std::max(origin.col - 1, 0));
  if (begin >= whole.size()) {
    std::size_t end = whole.size();
    return whole.empty() ? "" : fmt::format("{:>6} | {}\n", origin.line, cut_around(whole, end));
  }
  const std::string line = cut_around(whole, begin);
  const std::string_view view = line;
  const std::size_t marked = width(view.substr(begin, token_end(line, begin) - begin));
  const std::string before(width(view.substr(0, begin)), ' ');
  const std::string caret = "^" + std::string(marked - 1, '~');
  return fmt::format(
      "{:>6} | {}\n       | {}{}\n", origin.line, line, before, brush(caret, item.severity));
}

/// A value may be a whole file on one line, and messages quote values.
constexpr std::size_t kLongestValue = 160;
constexpr std::size_t kLongestMessage = 600;

std::string shortened(const std::string& text, std::size_t most) {
  return width(text) <= most ? text : text.substr(0, end_of(text, most)) + " ...";
}

std::string key_line(const char* word,
                     const std::string& path,
                     const std::string& value,
                     const Origin& origin) {
  const std::string assignment =
      value.empty() ? path : fmt::format("{} = {}", path, shortened(value, kLongestValue));
  return fmt::format("  {:<5} {:<34} ({})\n", word, assignment, detail::place(origin));
}

/// The lines below the first one that show what is at fault.
std::string shown_place(const Diagnostic& item, Sources& sources, const Brush& brush) {
  std::string text = source_lines(item, sources, brush);
  for (const std::string& from : item.origin.included_from) {
    text += fmt::format("  {:<5} included from {}\n", "in", from);
  }
  if (!item.path.empty()) {
    text += key_line("key", item.path, item.value, item.origin);
  }
  return text;
}

std::string render_one(const Diagnostic& item, Sources& sources, const Brush& brush) {
  const std::string word = std::string(detail::severity_word(item.severity)) + ":";
  std::string text = fmt::format("{}: {} {} [{}]\n{}",
                                 detail::place(item.origin),
                                 brush(word, item.severity),
                                 shortened(item.message, kLongestMessage),
                                 item.id,
                                 shown_place(item, sources, brush));
  for (const Related& related : item.related) {
    text += key_line("with", related.path, related.value, related.origin);
  }
  text += item.why.empty() ? "" : fmt::format("  {:<5} {}\n", "why", item.why);
  text += item.fix.empty() ? "" : fmt::format("  {:<5} {}\n", "fix", item.fix);
  return text;
}

/// Where a value was written, else the nearest section of its path that a file has.
Origin origin_of(const Loaded& loaded, std::string path) {
  const auto value = loaded.origins.find(path);
  if (value != loaded.origins.end() && !value->second.file.starts_with("derived(")) {
    return value->second;
  }
  while (!path.empty()) {
    const std::size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
    const auto section = loaded.sections.find(path);  // that of "" is the whole file
    if (section != loaded.sections.end()) {
      return section->second;
    }
  }
  Origin unwritten;
  unwritten.file = "<default>";
  return unwritten;
}

/// "3 errors, 1 warning"
std::string summary(std::span<const Diagnostic> diagnostics) {
  std::string text;
  for (const auto severity :
       {Diagnostic::Severity::error, Diagnostic::Severity::warning, Diagnostic::Severity::note}) {
    const auto number = std::count_if(diagnostics.begin(),
                                      diagnostics.end(),
                                      [&](const Diagnostic& d) { return d.severity == severity; });
    if (number > 0) {
      text += (text.empty() ? "" : ", ") + counted(number, detail::severity_word(severity));
    }
  }
  return text + "\n";
}

}  // namespace

KeyPlace place_of(const Loaded& loaded, std::string_view key) {
  Diagnostic item;
  item.path = key;
  item.origin = origin_of(loaded, item.path);
  for (const detail::FlatField& field : detail::flatten(loaded.config)) {
    item.value = field.path == key ? redact(loaded.config.secrets, field.text) : item.value;
  }
  Sources sources;
  return {detail::place(item.origin), shown_place(item, sources, Brush(false))};
}

DiagnosticForm diagnostic_form(bool json, int stream) {
  if (json) {
    return DiagnosticForm::json;
  }
  return use_color(stream) ? DiagnosticForm::colored : DiagnosticForm::text;
}

std::string render(std::span<const Diagnostic> diagnostics, DiagnosticForm form) {
  if (diagnostics.empty()) {
    return "";
  }
  if (form == DiagnosticForm::json) {
    return detail::json_lines(diagnostics);
  }
  const Brush brush(form == DiagnosticForm::colored);
  Sources sources;
  std::string text;
  for (const Diagnostic& item : diagnostics) {
    text += render_one(item, sources, brush);
  }
  return text + summary(diagnostics);
}

}  // namespace colossal
