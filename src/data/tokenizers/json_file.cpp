// Which parts of tokenizer.json are common to all models?
#include "data/tokenizers/json_file.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <utility>

namespace colossal::detail {
namespace {

TokenId id_of(const JsonValue& value) {
  return static_cast<TokenId>(value.number());
}

}  // namespace

JsonValue JsonValue::operator[](std::string_view key) const {
  static const nlohmann::json null;
  if (!json_->is_object()) {
    wrong_type("a mapping");
  }
  const auto it = json_->find(key);
  return {it == json_->end() ? null : *it, fmt::format("{}.{}", place_, key)};
}

std::vector<JsonValue> JsonValue::items() const {
  if (!json_->is_array()) {
    wrong_type("a list");
  }
  std::vector<JsonValue> values;
  values.reserve(json_->size());
  for (const nlohmann::json& item : *json_) {
    values.emplace_back(item, fmt::format("{}[{}]", place_, values.size()));
  }
  return values;
}

std::string JsonValue::text(std::string_view fallback) const {
  if (json_->is_null()) {
    return std::string(fallback);
  }
  if (!json_->is_string()) {
    wrong_type("a text");
  }
  return json_->get<std::string>();
}

bool JsonValue::flag(bool fallback) const {
  if (json_->is_null()) {
    return fallback;
  }
  if (!json_->is_boolean()) {
    wrong_type("true or false");
  }
  return json_->get<bool>();
}

std::int64_t JsonValue::number() const {
  if (!json_->is_number_integer()) {
    wrong_type("a whole number");
  }
  return json_->get<std::int64_t>();
}

void JsonValue::wrong_type(std::string_view wanted) const {
  fail(ErrorKind::data,
       "tokenizer-file",
       "{} is {}, not {}; is this the right file?",
       place_,
       json_->is_null() ? "missing" : json_->type_name(),
       wanted);
}

nlohmann::json parse_tokenizer_json(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "tokenizer-file", "{} is no JSON: {}", path.string(), error.what());
  }
}

void unsupported(const JsonValue& value, std::string_view what, std::string_view expected) {
  fail(ErrorKind::data,
       "tokenizer-unsupported",
       "{}: '{}' is not supported; supported: {}",
       value.place(),
       what,
       expected);
}

void read_vocabulary(const JsonValue& vocab, Vocabulary& vocabulary) {
  static_cast<void>(vocab["<any>"]);  // complains if this is no mapping
  for (const auto& [token, id] : vocab.json().items()) {
    const std::string place = fmt::format("{}['{}']", vocab.place(), token);
    vocabulary.add(token, JsonValue(id, place).number(), place);
  }
}

std::vector<AddedToken> read_added_tokens(const JsonValue& added,
                                          bool normalizes,
                                          Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (!added) {
    return tokens;
  }
  for (const JsonValue& item : added.items()) {
    const std::string content = item["content"].text();
    check(!content.empty(),
          ErrorKind::data,
          "tokenizer-file",
          "{} is empty; an added token needs a text",
          item["content"].place());
    if (item["single_word"].flag(false)) {
      unsupported(item, "single_word: true", "single_word: false");
    }
    if (normalizes && item["normalized"].flag(false)) {
      unsupported(item, "normalized: true", "normalized: false beside a normalizer");
    }
    vocabulary.add(content, item["id"].number(), item.place());
    tokens.push_back(
        {content, id_of(item["id"]), item["lstrip"].flag(false), item["rstrip"].flag(false)});
  }
  return tokens;
}

}  // namespace colossal::detail
