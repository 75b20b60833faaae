// How do the values of a sweep look: as `--set` takes them, and in one form each, for comparison?
#pragma once

#include "config/tree.hpp"
#include "core/json.hpp"

#include <string>

namespace colossal::detail {

/// A value as YAML in flow style on one line; reading it gives the same value.
[[nodiscard]] std::string flow_yaml(const Node& node);

/// A value as JSON with sorted keys and numbers in one form: 5k, 5_000 and 5e3 are 5000.
[[nodiscard]] nlohmann::json plain_json(const Node& node);

/// `value` of key `path` with its relative paths starting at `folder`, wherever the registry says
/// that a text is a path.
[[nodiscard]] Node with_absolute_paths(Node value,
                                       const std::string& path,
                                       const std::string& folder);

/// Whether the registry's key takes whole numbers.
[[nodiscard]] bool takes_integers(const std::string& path);

}  // namespace colossal::detail
