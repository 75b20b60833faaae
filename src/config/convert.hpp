// How does one node become the value of one member?
#pragma once

#include "config/fields.hpp"
#include "config/scalar.hpp"
#include "config/tree.hpp"

#include <filesystem>
#include <string>

namespace colossal::detail {

/// Stores `node` (not null) in `slot` as `spec` says. Reports bad-int, bad-real, bad-bool,
/// bad-duration, bad-string, bad-enum, quoted-number, wrong-type, out-of-range, list-length,
/// data-weights at the node, and required and unknown-key in a mapping of a list of sources. `path`
/// is the key path.
void convert(
    const Node& node, const std::string& path, const Slot& slot, const Spec& spec, Report& report);

/// YAML to write instead of a value that holds a secret; empty if `node` holds none.
[[nodiscard]] std::string hidden_text(const Node& node, const Spec& spec);

}  // namespace colossal::detail
