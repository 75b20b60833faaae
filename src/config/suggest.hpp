// What did the user mean? Nearest words, keys elsewhere, and names from other trainers
// (config-and-cli 4.7).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// The candidate nearest to `word` within max(2, size / 3) edits; nothing if none is that near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

namespace detail {

/// Damerau-Levenshtein distance (optimal string alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Key path to offer for an unknown `key` in mapping `section`: nearest sibling, else any key path
/// with (nearly) this last component, else the table of foreign names. `siblings` and `paths` come
/// from the registry.
[[nodiscard]] std::optional<std::string> suggest_key(std::string_view section,
                                                     std::string_view key,
                                                     std::span<const std::string> siblings,
                                                     std::span<const std::string> paths);

}  // namespace detail
}  // namespace colossal
