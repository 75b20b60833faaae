// How does valijson read a schema and a YAML text? It takes long to compile: here, once.
#include "schema_check.hpp"

#include "config/scalar.hpp"

#include <cstdint>
#include <exception>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace colossal::test {
namespace {

nlohmann::json core_scalar(const std::string& text) {
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

}  // namespace

nlohmann::json to_json(const detail::Node& node) {
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

struct SchemaCheck::Schema {
  valijson::Schema rules;
};

SchemaCheck::SchemaCheck(const std::string& text) : schema_(std::make_unique<Schema>()) {
  const nlohmann::json document = nlohmann::json::parse(text);
  valijson::adapters::NlohmannJsonAdapter adapter(document);
  valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(adapter, schema_->rules);
}

SchemaCheck::~SchemaCheck() = default;

bool SchemaCheck::accepts(const std::string& text) {
  detail::Report report;
  const auto root = detail::parse_yaml(text, {}, false, report);
  REQUIRE(root.has_value());
  const nlohmann::json target = to_json(*root);
  valijson::adapters::NlohmannJsonAdapter adapter(target);
  return valijson::Validator().validate(schema_->rules, adapter, nullptr);
}

}  // namespace colossal::test
