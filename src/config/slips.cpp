// How is a missing colon or space told from a wrong key?
#include "config/slips.hpp"

#include "config/flatten.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace colossal::detail {
namespace {

constexpr std::string_view kWordChars = "abcdefghijklmnopqrstuvwxyz_0123456789";

/// Whether a part of the key path is `word`: "steps" of "train.steps".
bool has_part(std::string_view path, std::string_view word) {
  for (std::size_t at = path.find(word); at != std::string_view::npos;
       at = path.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || path[at - 1] == '.';
    if (begins && (end == path.size() || path[end] == '.' || path[end] == '[')) {
      return true;
    }
  }
  return false;
}

/// Whether `word` names a key or a section, anywhere in the registry.
bool names_key(std::string_view word) {
  const std::vector<std::string> paths = all_paths();
  return word == "extends" || word == "vars" ||
         std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
           return has_part(path, word);
         });
}

/// The value as the fix shows it; empty if it is more than one word.
std::string_view shown_value(std::string_view rest) {
  rest = rest.substr(0, rest.find(" #"));
  rest = rest.substr(0, rest.find_last_not_of(" ,") + 1);
  const bool one_word = rest.find_first_of(" {}[]") == std::string_view::npos;
  return one_word ? rest : std::string_view();
}

bool is_blank(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin == std::string_view::npos || line[begin] == '#';
}

/// `text` with what the slip in its line `words` lacks.
std::string mended(std::string_view text, std::string_view words, const Slip& slip) {
  const auto begin = static_cast<std::size_t>(words.data() - text.data());
  std::string whole(text);
  whole.insert(begin + slip.begin + slip.key.size() + (slip.has_colon ? 1 : 0),
               slip.has_colon ? " " : ":");
  return whole;
}

void tell(const Slip& slip, std::string_view path, const Origin& origin, Report& report) {
  Diagnostic& error =
      slip.has_colon
          ? report.error("missing-space",
                         path,
                         origin,
                         fmt::format("the colon of `{}` is not followed by a space", slip.key))
          : report.error("missing-colon",
                         path,
                         origin,
                         fmt::format("`{}` is not followed by a colon", slip.key));
  error.why = "YAML needs a colon and a space between a key and its value";
  error.fix = slip.value.empty() ? fmt::format("write `{}: ` and then its value", slip.key)
                                 : fmt::format("write `{}: {}`", slip.key, slip.value);
}

}  // namespace

std::string_view line_of(std::string_view text, int number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return {};
    }
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

std::optional<Slip> find_slip(std::string_view text) {
  std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  if (text.substr(begin).starts_with("- ")) {
    begin = std::min(text.find_first_not_of(' ', begin + 1), text.size());
  }
  const std::size_t end = std::min(text.find_first_not_of(kWordChars, begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  const bool glued = end + 1 < text.size() && text[end] == ':' && text[end + 1] != ' ';
  const bool spaced = end + 1 < text.size() && text[end] == ' ';
  const std::string_view rest = text.substr(std::min(end + 1, text.size()));
  const std::size_t value = rest.find_first_not_of(' ');
  const bool followed = value != std::string_view::npos && rest[value] != ':' && rest[value] != '#';
  if (word.empty() || !followed || (!glued && !spaced) || !names_key(word)) {
    return std::nullopt;
  }
  return Slip{std::string(word), std::string(shown_value(rest.substr(value))), glued, begin};
}

bool report_slip(const Node& scalar, std::string_view path, Report& report) {
  const bool plain = scalar.kind == Node::Kind::scalar && !scalar.quoted;
  const auto slip = plain ? find_slip(scalar.text) : std::nullopt;
  if (slip) {
    tell(*slip, path, scalar.origin, report);
  }
  return slip.has_value();
}

bool report_slip_near(std::string_view text,
                      int line,
                      const Origin& base,
                      const std::function<bool(const std::string&)>& helps,
                      Report& report) {
  for (int looked = 0; line >= 1 && looked < 2; --line) {
    const std::string_view words = line_of(text, line);
    looked += is_blank(words) ? 0 : 1;
    const auto slip = is_blank(words) ? std::nullopt : find_slip(words);
    if (!slip || !helps(mended(text, words, *slip))) {
      continue;
    }
    Origin origin = base;
    origin.line = base.line == 0 ? line : base.line;
    origin.col = base.line == 0 ? static_cast<int>(slip->begin) + 1 : base.col;
    tell(*slip, "", origin, report);
    return true;
  }
  return false;
}

}  // namespace colossal::detail
