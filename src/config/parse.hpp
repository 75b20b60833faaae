// How does a YAML text become a tree with places? The only user of yaml-cpp.
#pragma once

#include "config/tree.hpp"

#include <optional>
#include <string_view>

namespace colossal::detail {

/// Parses one document. `base` names the source; with base.line > 0 (an override) every node
/// carries that origin. Reports the ids of scan_yaml and duplicate-key, merge-key, tag,
/// multi-document, bad-key, yaml-syntax. Returns nothing if the text has no usable tree; an empty
/// text gives a null node.
[[nodiscard]] std::optional<Node> parse_yaml(std::string_view text,
                                             const Origin& base,
                                             bool json,
                                             Report& report);

}  // namespace colossal::detail
