// What do the JSON Schemas of configurations and sweeps share, and what do they say about a number?
#pragma once

#include "config/fields.hpp"
#include "core/json.hpp"

#include <functional>
#include <string_view>

namespace colossal::detail {

using Json = nlohmann::ordered_json;

/// A text with `${...}` in it may stand for any single value.
inline constexpr const char* kUse = R"(\$\{)";

/// A closed object of the keys that `walk` shows to its visitor.
[[nodiscard]] Json schema_of_keys(const std::function<void(Visitor&)>& walk);

/// "$schema" and "title", to which the keys are added.
[[nodiscard]] Json schema_head(std::string_view title);

/// Whole numbers are shown without a decimal point.
[[nodiscard]] Json number(double value);

/// Numbers of the key's range, and texts that our grammar reads as a whole number but YAML readers
/// leave as text: 1_000, and 300B for counts.
[[nodiscard]] Json integer_schema(const Spec& spec);

/// Numbers of the key's range, or durations with their unit.
[[nodiscard]] Json real_schema(const Spec& spec);

}  // namespace colossal::detail
