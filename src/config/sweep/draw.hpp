// Which value does a draw of a random sweep give?
#pragma once

#include "config/tree.hpp"

#include <cstddef>
#include <cstdint>

namespace colossal::detail {

/// Reports sweep-distribution unless the entry of a key is one of {uniform: [low, high]},
/// {log_uniform: [low, high]} and {choice: [value, ...]}.
void check_distribution(const Node& entry, Report& report);

/// The value of a checked entry in trial `index`: a function of seed, index and key alone, so that
/// more samples or more keys change no other draw. Whole for keys that take whole numbers (both
/// bounds included), else with six significant digits.
[[nodiscard]] Node draw(const Node& entry, std::int64_t seed, std::size_t index);

}  // namespace colossal::detail
