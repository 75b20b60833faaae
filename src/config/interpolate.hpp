// How do `${...}` in values become text (phase P2, config-and-cli 1.3)?
#pragma once

#include "config/load.hpp"
#include "config/tree.hpp"

#include <map>
#include <string>
#include <vector>

namespace colossal::detail {

/// What interpolation needs besides the tree.
struct InterpolateInput {
  std::string stem;      ///< of the configuration file: the default of run.name
  std::string run_time;  ///< value of ${run.time}
};

/// What interpolation found out.
struct Interpolated {
  /// By key path: the values that were inserted there.
  std::map<std::string, std::vector<Related>> sources;
  /// Values of secret environment variables, with the expression to show instead.
  std::map<std::string, std::string> secrets;
  bool uses_run_time = false;
};

/// Replaces every `${...}` in the values of `root` and takes `vars` out of it. Texts that hold one
/// count as written without quotes. Reports interp-unknown, interp-env, interp-cycle,
/// interp-syntax, the warning unused-var, and wrong-type or bad-key in `vars`.
[[nodiscard]] Interpolated interpolate(Node& root, const InterpolateInput& input, Report& report);

}  // namespace colossal::detail
