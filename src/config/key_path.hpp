// How is "data.train[0].path" read? As steps from the top of the tree.
#pragma once

#include "config/tree.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// One step of a key path: a key, or an index (its key is then empty).
struct Step {
  std::string key;
  std::size_t index = 0;
};

/// The steps of "a.b[0].c"; empty if malformed.
[[nodiscard]] std::vector<Step> split_path(std::string_view path);

/// What split_path() was given, without leading zeros.
[[nodiscard]] std::string path_text(const std::vector<Step>& steps);

/// The child of `node` that a step names; nullptr if there is none.
[[nodiscard]] const Node* child_at(const Node& node, const Step& step);
[[nodiscard]] Node* child_at(Node& node, const Step& step);

}  // namespace colossal::detail
