// How does the command line change the composed tree? --set KEY=VALUE, KEY@FILE and dedicated flags
// (1.4).
#pragma once

#include "config/compose.hpp"
#include "config/load.hpp"

namespace colossal::detail {

/// Merges the --config-overlay files onto `root`, in order, each as a layer of its own. Reports the
/// ids of Composer.
void apply_overlays(Node& root, const LoadOptions& options, Composer& composer);

/// Applies all overrides to `root`, in order, as one layer. Missing mappings on the way are
/// created: a wrong path is then reported as an unknown key at the override. Reports
/// override-syntax, override-path, index-range, the ids of Composer, and the note
/// override-shadowed.
void apply_overrides(Node& root, const LoadOptions& options, Composer& composer, Report& report);

}  // namespace colossal::detail
