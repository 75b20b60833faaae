// How do tests ask the JSON Schema about a YAML text? By valijson, on the text as a YAML 1.2 reader
// sees it.
#pragma once

#include "config/load.hpp"
#include "config/parse.hpp"
#include "config/scalar.hpp"
#include "support/catch.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace colossal::test {

/// A plain scalar as a YAML 1.2 core reader types it; whole floats are integers, as JSON Schema has
/// it.
inline nlohmann::json core_scalar(const std::string& text) {
  if (text == "true" || text == "false") {
    return text == "true";
  }
  if (!detail::looks_numeric(text)) {
    return text;
  }
  std::size_t used = 0;
  try {
    const double value = std::stod(text, &used);
    if (used != text.size()) {
      return text;
    }
    const bool whole = value == static_cast<double>(static_cast<std::int64_t>(value));
    return whole ? nlohmann::json(static_cast<std::int64_t>(value)) : nlohmann::json(value);
  } catch (const std::exception&) {
    return text;
  }
}

inline nlohmann::json to_json(const detail::Node& node) {
  switch (node.kind) {
    case detail::Node::Kind::null:
      return nullptr;
    case detail::Node::Kind::scalar:
      return node.quoted ? nlohmann::json(node.text) : core_scalar(node.text);
    case detail::Node::Kind::list: {
      nlohmann::json list = nlohmann::json::array();
      for (const auto& child : node.children) {
        list.push_back(to_json(child));
      }
      return list;
    }
    case detail::Node::Kind::map:
      break;
  }
  nlohmann::json map = nlohmann::json::object();
  for (const auto& child : node.children) {
    map[child.key] = to_json(child);
  }
  return map;
}

/// Whether the schema accepts a YAML text that parses.
class SchemaCheck {
 public:
  explicit SchemaCheck(const std::string& text = json_schema()) {
    const nlohmann::json document = nlohmann::json::parse(text);
    valijson::adapters::NlohmannJsonAdapter adapter(document);
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(adapter, schema_);
  }
  [[nodiscard]] bool accepts(const std::string& text) {
    detail::Report report;
    const auto root = detail::parse_yaml(text, {}, false, report);
    REQUIRE(root.has_value());
    const nlohmann::json target = to_json(*root);
    valijson::adapters::NlohmannJsonAdapter adapter(target);
    return valijson::Validator().validate(schema_, adapter, nullptr);
  }

 private:
  valijson::Schema schema_;
};

}  // namespace colossal::test
