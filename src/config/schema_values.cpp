// How are the texts of numbers described by patterns?
#include "config/schema_values.hpp"

#include <fmt/format.h>

#include <cmath>

namespace colossal::detail {
namespace {

void add_range(Json& schema, const Range& range) {
  if (range.min > -std::numeric_limits<double>::infinity()) {
    schema[range.min_open ? "exclusiveMinimum" : "minimum"] = number(range.min);
  }
  if (range.max < std::numeric_limits<double>::infinity()) {
    schema[range.max_open ? "exclusiveMaximum" : "maximum"] = number(range.max);
  }
}

}  // namespace

Json number(double value) {
  constexpr double kExact = 9e15;
  return std::floor(value) == value && std::abs(value) < kExact
             ? Json(static_cast<std::int64_t>(value))
             : Json(value);
}

Json integer_schema(const Spec& spec) {
  std::string pattern = "-?[0-9]+(_[0-9]+)+";
  if (spec.form == Form::count) {
    pattern += R"(|[0-9]+(_[0-9]+)*(\.[0-9]+)?[kMBT])";
  }
  if (spec.form == Form::bytes) {
    pattern += R"(|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?([KMGT]i?)?B)";
  }
  pattern += spec.all_word ? "|all" : "";
  pattern += spec.auto_word ? "|auto" : "";
  Json schema = {{"type", {"integer", "string"}},
                 {"pattern", fmt::format("^({})$|{}", pattern, kUse)}};
  add_range(schema, spec.range);
  return schema;
}

Json real_schema(const Spec& spec) {
  if (spec.form == Form::duration) {
    const char* duration = R"(^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?[smhd]$)";
    return {{"type", {"string"}}, {"pattern", fmt::format("{}|{}", duration, kUse)}};
  }
  Json schema = {{"type", {"number", "string"}}, {"pattern", kUse}};
  add_range(schema, spec.range);
  return schema;
}

}  // namespace colossal::detail
