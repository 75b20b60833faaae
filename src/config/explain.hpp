// What can be said about the keys themselves, and about where the values of one file come from?
#pragma once

#include "config/load.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal {

/// Type, default, meaning and resume class of a key, or of every key of a section; nothing if there
/// is no such key.
[[nodiscard]] std::optional<std::string> explain_key(std::string_view key);

/// As explain_key() with the value of each key and what every layer wrote, lowest first. `loaded`
/// has no errors.
[[nodiscard]] std::optional<std::string> explain(const Loaded& loaded, std::string_view key);

/// The key path that an unknown one was probably meant to be.
[[nodiscard]] std::optional<std::string> nearest_key(std::string_view key);

/// The words that a key takes, in registry order; none for numbers and free texts. Keys of list
/// items are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<std::string>>> key_words();

/// The reference of all keys as Markdown tables: schemas/keys.md.
[[nodiscard]] std::string key_markdown();

/// Resolved YAML with the origin of each value as a comment.
[[nodiscard]] std::string to_yaml_with_origins(const Loaded& loaded);

/// A JSON text with the secrets in its strings replaced by their expressions, indented by `indent`
/// spaces (-1: one line); in the text itself an escaped value would not be found.
[[nodiscard]] std::string redact_json(const Secrets& secrets, const std::string& json, int indent);

}  // namespace colossal
