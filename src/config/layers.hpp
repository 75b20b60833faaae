// Which layers set a key? For `config explain`.
#pragma once

#include "config/load.hpp"
#include "config/tree.hpp"

#include <map>
#include <string>
#include <vector>

namespace colossal::detail {

/// By path of every key that the tree holds or held: what each layer wrote, lowest first. A layer
/// that replaced a whole section counts for each key that the section had.
[[nodiscard]] std::map<std::string, std::vector<Related>> layers_of(const Node& root);

}  // namespace colossal::detail
