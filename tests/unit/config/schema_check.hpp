// How do tests ask the JSON Schema about a YAML text? By valijson, on the text as a YAML 1.2 reader
// sees it.
#pragma once

#include "config/load.hpp"
#include "config/parse.hpp"
#include "support/catch.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {

/// What a YAML 1.2 core reader sees; whole floats are integers, as JSON Schema has it.
nlohmann::json to_json(const detail::Node& node);

/// Whether the schema accepts a YAML text that parses.
class SchemaCheck {
 public:
  explicit SchemaCheck(const std::string& text = json_schema());
  ~SchemaCheck();
  SchemaCheck(const SchemaCheck&) = delete;
  SchemaCheck& operator=(const SchemaCheck&) = delete;
  [[nodiscard]] bool accepts(const std::string& text);

 private:
  struct Schema;
  std::unique_ptr<Schema> schema_;
};

}  // namespace colossal::test
