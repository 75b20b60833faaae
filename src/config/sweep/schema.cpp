// How does the schema of sweeps follow from that of configurations? Every key of it may be varied,
// with values of its own type.
#include "config/schema_values.hpp"
#include "config/sweep.hpp"
#include "config/sweep/file.hpp"

#include <fmt/format.h>

#include <string>

namespace colossal {
namespace detail {
namespace {

/// Keys that belong to the sweep, as the loader refuses them.
constexpr std::string_view kReserved = "run.output_dir run.name checkpoint.resume";
/// Variables, and keys inside of list items: any value, which the trial's check judges.
constexpr const char* kOther =
    R"(^(vars\.[A-Za-z_][A-Za-z0-9_]*|[a-z_]+(\.[a-z_]+|\[[0-9]+\])*\[[0-9]+\](\.[a-z_]+)*)$)";

/// By key path: what its value looks like. Sections are keys too, but for those at the top.
void collect(const Json& section, const std::string& path, Json& found) {
  const Json& mapping = section.contains("anyOf") ? section["anyOf"].back() : section;
  if (!mapping.contains("properties")) {
    return;
  }
  for (const auto& [key, value] : mapping["properties"].items()) {
    const std::string inner = join_path(path, key);
    if (key == "extends" || key == "vars" || among_words(inner, kReserved)) {
      continue;
    }
    if (!path.empty()) {
      found[inner] = value;
    }
    collect(value, inner, found);
  }
}

Json reference(const std::string& definition) {
  return {{"$ref", "#/definitions/" + definition}};
}

/// A closed mapping of keys; `form` makes the schema of a value from that of the key.
template <class MakeForm>
Json mapping_of(const Json& keys, const MakeForm& form) {
  Json properties = Json::object();
  for (const auto& [key, schema] : keys.items()) {
    properties[key] = form(reference(key));
  }
  return {{"type", "object"},
          {"properties", properties},
          {"patternProperties", {{kOther, form(Json::object())}}},
          {"additionalProperties", false}};
}

Json list_of(const Json& item) {
  return {{"type", "array"}, {"minItems", 1}, {"items", item}};
}

/// Of any key: the trial's check judges what is drawn.
Json distribution() {
  Spec bound;
  bound.form = Form::count;
  Json pair = list_of({{"anyOf", {{{"type", "number"}}, integer_schema(bound)}}});
  pair["minItems"] = 2;
  pair["maxItems"] = 2;
  return {{"type", "object"},
          {"properties",
           {{"uniform", pair}, {"log_uniform", pair}, {"choice", list_of(Json::object())}}},
          {"minProperties", 1},
          {"maxProperties", 1},
          {"additionalProperties", false}};
}

/// What holds under one method: keys of others are null, its own may be needed.
Json rule_of(std::string_view method) {
  Json is = {{"properties", {{"method", {{"const", method}}}}}};
  if (method == kWords<SweepMethod>.front()) {
    is["properties"]["method"] = {{"enum", {method, nullptr}}};
  } else {
    is["required"] = {"method"};
  }
  Json keys = Json::object();
  Json needed = Json::array();
  for (const MethodKey& part : method_keys()) {
    if (!among_words(method, part.methods)) {
      keys[std::string(part.key)] = {{"type", "null"}};
    } else if (part.required) {
      needed.push_back(part.key);
    }
  }
  if (!keys.contains("parameters")) {
    keys["parameters"] = {
        {"anyOf", {{{"type", "null"}}, reference(method == "random" ? "distributions" : "lists")}}};
  }
  return {{"if", is}, {"then", {{"properties", keys}, {"required", needed}}}};
}

void set_list(Json& property, const std::string& definition) {
  property["type"] = {"array", "null"};
  property["items"] = reference(definition);
}

}  // namespace
}  // namespace detail

std::string sweep_schema() {
  using detail::Json;
  SweepFile defaults;
  Json schema = detail::schema_head("colossal-train sweep");
  schema.update(detail::schema_of_keys([&](detail::Visitor& v) { detail::describe(v, defaults); }));
  Json keys = Json::object();
  detail::collect(Json::parse(json_schema()), "", keys);
  Json& properties = schema["properties"];
  detail::set_list(properties["zip"], "lists");
  detail::set_list(properties["exclude"], "assignments");
  detail::set_list(properties["trials"], "assignments");
  for (const std::string_view method : detail::kWords<SweepMethod>) {
    schema["allOf"].push_back(detail::rule_of(method));
  }
  Json definitions = keys;
  definitions["assignments"] = detail::mapping_of(keys, [](const Json& value) { return value; });
  definitions["lists"] = detail::mapping_of(keys, detail::list_of);
  definitions["distribution"] = detail::distribution();
  definitions["distributions"] = detail::mapping_of(
      keys, [](const Json& /*value*/) { return detail::reference("distribution"); });
  schema["definitions"] = definitions;
  return schema.dump(2) + "\n";
}

}  // namespace colossal
