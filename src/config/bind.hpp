// How does the composed tree fill the structs (phase P3)?
#pragma once

#include "config/config.hpp"
#include "config/origins.hpp"
#include "config/tree.hpp"

namespace colossal::detail {

/// Reads every described key of `root` into `config` and records origins. Reports unknown-key,
/// required, one-of, unused-section, version-newer, the ids of convert(), and the note
/// dropped-by-type.
void bind(const Node& root, Config& config, Origins& origins, Report& report);

}  // namespace colossal::detail
