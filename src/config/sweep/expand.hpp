// Which keys does each trial of a sweep set?
#pragma once

#include "config/sweep/file.hpp"

#include <string>
#include <vector>

namespace colossal::detail {

/// One key that a trial sets.
struct Assignment {
  std::string key;
  Node value;  ///< with its place in the sweep file
};

/// What one trial sets, in the order of the file.
using Assignments = std::vector<Assignment>;

/// The trials of a sweep in order: a grid varies the last key fastest. Reports wrong-type,
/// sweep-reserved, sweep-key-twice, sweep-zip, sweep-distribution, sweep-too-large, sweep-empty,
/// exclude-unused.
[[nodiscard]] std::vector<Assignments> expand(const SweepFile& file, Report& report);

}  // namespace colossal::detail
