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
};

/// Every key that applies to the configuration's variants, in registry order.
[[nodiscard]] std::vector<FlatField> flatten(const Config& config);

/// Every key path of the registry, of all variants.
[[nodiscard]] std::vector<std::string> all_paths();

/// Text of one value in YAML flow style; an unset value is `auto` or `null`.
[[nodiscard]] std::string slot_text(const Slot& slot, const Spec& spec);

/// `text` as a YAML scalar, in quotes where a plain one would mean something else.
[[nodiscard]] std::string yaml_string(const std::string& text);

}  // namespace colossal::detail
