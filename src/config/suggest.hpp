// What did the user mean? Nearest words, keys elsewhere, and names from other trainers
// (config-and-cli 4.7).
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// The candidate nearest to `word` within max(2, size / 3) edits; nothing if none is that near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

/// Names of what lies in a folder, sorted; none if it cannot be read.
[[nodiscard]] std::vector<std::string> files_in(const std::filesystem::path& folder);

/// What `path`, which does not exist, was probably meant to be: the entry of its folder with the
/// same name and an ending, or with the nearest name; the folder as it was given, or the nearest
/// one that holds a file of this name.
[[nodiscard]] std::optional<std::string> nearest_file(const std::filesystem::path& path);

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
