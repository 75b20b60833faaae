// What are all key paths and values of a configuration, as text? For messages, differences and
// suggestions.
#pragma once

#include "config/fields.hpp"

#include <string>
#include <vector>

namespace colossal::detail {

/// One key with its value as it would be written in YAML.
struct FlatField {
  std::string path;
  std::string text;
  ResumeClass resume = ResumeClass::free;
  bool derived = false;
  bool has_default = false;  ///< a single value that is known without the rest
};

/// Every key that applies to the configuration's variants, in registry order.
[[nodiscard]] std::vector<FlatField> flatten(const Config& config);

/// Every key of the registry, of all variants, with its default.
[[nodiscard]] std::vector<FlatField> all_fields();

/// Every key path of the registry, of all variants.
[[nodiscard]] std::vector<std::string> all_paths();

/// Text of one value in YAML flow style; an unset value is `auto` or `null`.
[[nodiscard]] std::string slot_text(const Slot& slot, const Spec& spec);

/// `text` with `$${` for every `${`, so that phase P2 gives it back.
[[nodiscard]] std::string escape_braces(std::string text);

/// `text` in double quotes, as it is but for quotes and backslashes.
[[nodiscard]] std::string quoted_yaml(std::string_view text);

/// `text` as a YAML scalar, in quotes where a plain one would mean something else.
[[nodiscard]] std::string yaml_string(const std::string& text);

}  // namespace colossal::detail
