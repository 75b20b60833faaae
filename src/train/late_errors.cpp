// How is the text of an error taken apart again? Into what it says, its fix and its place.
#include "train/late_errors.hpp"

#include "core/color.hpp"
#include "train/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

namespace colossal {
namespace {

constexpr std::string_view kFixMark = "\n  fix   ";
constexpr std::string_view kContextMark = "\n  while ";

/// The number behind the last `mark` of `text`, which then ends before it.
std::optional<int> take_number(std::string_view& text, char mark) {
  const std::size_t at = text.rfind(mark);
  int number = 0;
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const auto [end, error] =
      std::from_chars(text.data() + at + 1, text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  text = text.substr(0, at);
  return number;
}

/// "a.yaml:3:7", "preset gpt2-124m, a.yaml:3:7", "--set#1", "--resume" or "<default>" as what it
/// was made of.
Origin origin_of_place(std::string_view place) {
  Origin origin;
  if (const std::size_t comma = place.find(", "); place.starts_with("preset ")) {
    origin.via = place.substr(0, comma);
    place.remove_prefix(std::min(comma + 2, place.size()));
  }
  const std::string_view whole = place;
  const bool flag = place.starts_with("--");
  const std::optional<int> last = take_number(place, flag ? '#' : ':');
  const std::optional<int> first = last && !flag ? take_number(place, ':') : std::nullopt;
  if (flag && last) {
    origin.line = *last;
  } else if (first) {
    origin.line = *first;
    origin.col = *last;
  } else {
    place = whole;
  }
  origin.file = place;
  return origin;
}

/// A message without the lines that Error::placed() has put below its first one, up to that of the
/// key, and without those of contexts.
std::string message_of(std::string_view text, const std::string& key) {
  std::string message(text.substr(0, text.find(kFixMark)));
  const std::string key_mark = "\n  key   " + key + " ";
  if (const std::size_t at = message.find(key_mark); !key.empty() && at != std::string::npos) {
    const std::size_t first = message.find('\n');
    message.erase(first, message.find('\n', at + 1) - first);
  }
  for (std::size_t at = 0; (at = message.find(kContextMark, at)) != std::string::npos;) {
    message.erase(at, message.find('\n', at + 1) - at);
  }
  return message;
}

/// A fix without what aligns its lines for people.
std::string fix_of(std::string_view text) {
  std::string fix;
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const std::size_t end = std::min(text.find('\n'), text.size());
    fix += (fix.empty() ? "" : "\n") + std::string(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fix;
}

Diagnostic diagnostic_of(std::string_view id, std::string_view text, const std::string& key) {
  Diagnostic item;
  item.id = id;
  item.path = key;
  item.message = message_of(text, key);
  if (const std::size_t at = text.find(kFixMark); at != std::string_view::npos) {
    const std::string_view fix = text.substr(at + kFixMark.size());
    item.fix = fix_of(fix.substr(0, fix.find(kContextMark)));
  }
  return item;
}

}  // namespace

Diagnostic to_diagnostic(const Error& error) {
  Diagnostic item = diagnostic_of(error.id(), error.what(), error.key());
  item.origin = origin_of_place(error.place());
  return item;
}

Diagnostic to_diagnostic(const RunFailure& failure, const Loaded& loaded) {
  Diagnostic item = diagnostic_of(failure.id, failure.message, failure.key);
  if (!failure.key.empty()) {
    item.origin = origin_of_place(place_of(loaded, failure.key).place);
  }
  return item;
}

void print_json(const Diagnostic& item) {
  const std::string line = render({&item, 1}, DiagnosticForm::json);
  std::fwrite(line.data(), 1, line.size(), stdout);  // unlike print(), goes on without a reader
  std::fflush(stdout);
}

void write_error(const Error& error, bool json) {
  if (json) {
    print_json(to_diagnostic(error));
    return;
  }
  const std::string text = to_text(error);
  fmt::print(stderr, "{}", use_color(STDERR_FILENO) ? paint_severity(text) : text);
}

}  // namespace colossal
