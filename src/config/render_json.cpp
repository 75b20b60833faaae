// How do diagnostics look to a program (config-and-cli 4.9)?
#include "config/explain.hpp"
#include "config/tree.hpp"
#include "core/json.hpp"

namespace colossal {
namespace {

using Json = nlohmann::ordered_json;

void add_place(Json& object, const Origin& origin) {
  object["file"] = origin.file;
  object["line"] = origin.line;
  object["column"] = origin.col;
}

Json to_json(const Diagnostic& item) {
  Json object;
  object["id"] = item.id;
  object["severity"] = detail::severity_word(item.severity);
  object["message"] = item.message;
  add_place(object, item.origin);
  object["path"] = item.path;
  object["related"] = Json::array();
  for (const Related& related : item.related) {
    Json one;
    one["path"] = related.path;
    one["value"] = related.value;
    add_place(one, related.origin);
    object["related"].push_back(one);
  }
  object["fix"] = item.fix;
  return object;
}

void redact_strings(const Secrets& secrets, Json& value) {
  if (value.is_string()) {
    value = redact(secrets, value.get<std::string>());
  }
  if (value.is_structured()) {
    for (Json& part : value) {
      redact_strings(secrets, part);
    }
  }
}

}  // namespace

std::string redact_json(const Secrets& secrets, const std::string& json, int indent) {
  if (secrets.values.empty()) {
    return json;
  }
  Json value = Json::parse(json);
  redact_strings(secrets, value);
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string detail::json_lines(std::span<const Diagnostic> diagnostics) {
  std::string text;
  for (const Diagnostic& item : diagnostics) {
    // Names of files may hold any bytes; a reader must get valid JSON.
    text += to_json(item).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace colossal
