// Which defects of a YAML text must be found before the parser sees it? Those that yaml-cpp accepts
// or explains badly.
#pragma once

#include "config/tree.hpp"

#include <string>
#include <string_view>

namespace colossal::detail {

/// Length of the UTF-8 sequence at `text[i]`; 0 if it is malformed (overlong, surrogate, cut,
/// beyond U+10FFFF).
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t i);

/// Strips a byte-order mark and the CR of CR LF, then reports not-utf8, control-character,
/// tab-indent, unclosed-quote, unclosed-bracket and interp-quote with their places. `base` names
/// the source (see Origin); with base.line > 0 (an override) every report carries that origin. Tabs
/// are legal in JSON: `json` skips their check. Returns the cleaned text; the caller checks
/// `report`.
[[nodiscard]] std::string scan_yaml(std::string_view text,
                                    const Origin& base,
                                    bool json,
                                    Report& report);

}  // namespace colossal::detail
