// Can the run be stored under its name?
#include "config/flatten.hpp"
#include "config/rules/rules.hpp"
#include "config/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace colossal::detail {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// Holds for the file stem too, when that is the name.
void name_is_a_folder(const RuleInput& in) {
  const std::string& name = in.config.run.name;
  if (names_a_folder(name)) {
    return;
  }
  Diagnostic& error = in.error("bad-name", "run.name", fmt::format("'{}' cannot name a run", name));
  error.why = "the name becomes a folder; its default is the stem of the configuration file";
  error.fix = "run: {name: ...} with 1 to 80 of A-Z a-z 0-9 . _ -";
}

/// The first byte of a text that is not UTF-8; nothing if all is.
std::optional<unsigned char> first_bad_byte(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      return static_cast<unsigned char>(text[i]);
    }
    i += length;
  }
  return std::nullopt;
}

/// Words that are no YAML - a folder on the command line, the working directory - may hold any
/// bytes, but the configuration is stored as text that must be read again.
void texts_are_utf8(const RuleInput& in) {
  for (const FlatField& field : flatten(in.config)) {
    if (field.path == "run.name") {
      continue;  // which may have far fewer characters
    }
    if (const auto byte = first_bad_byte(field.text)) {
      in.error("not-utf8", field.path, fmt::format("byte 0x{:02x} is not valid UTF-8", *byte)).fix =
          "choose a name or a folder that is UTF-8";
    }
  }
}

constexpr std::array<Rule, 2> kRunRules = {name_is_a_folder, texts_are_utf8};

}  // namespace

bool names_a_folder(std::string_view name) {
  constexpr std::size_t kLongest = 80;
  return std::all_of(name.begin(), name.end(), is_name_char) && !name.empty() &&
         name.size() <= kLongest && name != "." && name != "..";
}

std::span<const Rule> run_rules() {
  return kRunRules;
}

}  // namespace colossal::detail
