// Which slip of the keyboard stands where YAML expects `key: value`? Found by the names of keys.
#pragma once

#include "config/tree.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace colossal::detail {

/// A key and its value without what YAML needs between them.
struct Slip {
  std::string key;
  std::string value;       ///< empty if it is more than one word
  bool has_colon = false;  ///< the space behind it is missing; else the colon
  std::size_t begin = 0;   ///< where in the text the key stands
};

/// The slip in a text that stands where `key: value` should: "type text" lacks a colon, "steps:30"
/// a space. Nothing unless it begins with the name of a key, after spaces and the dash of an item.
[[nodiscard]] std::optional<Slip> find_slip(std::string_view text);

/// Reports missing-colon or missing-space for a scalar that should have been a key or a mapping;
/// returns whether it holds a slip. Texts in quotes are meant as they are.
bool report_slip(const Node& scalar, std::string_view path, Report& report);

/// Reports the slip that made the parser stop in line `line` (1-based) of `text`: in that line, or
/// in the last one before that is neither blank nor a comment. `helps` says of the text with a slip
/// mended whether the parser comes further: what is none, such as the second line of a text, does
/// not. Returns whether there is one. With base.line > 0 (an override) the report carries that
/// origin.
bool report_slip_near(std::string_view text,
                      int line,
                      const Origin& base,
                      const std::function<bool(const std::string&)>& helps,
                      Report& report);

/// Line `number` (1-based) of `text`; empty beyond its end.
[[nodiscard]] std::string_view line_of(std::string_view text, int number);

}  // namespace colossal::detail
