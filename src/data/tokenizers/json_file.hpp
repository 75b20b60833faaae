// How is tokenizer.json read, with every complaint naming the file and the key?
#pragma once

#include "core/json.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokenizers/vocabulary.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// A value of a JSON file and the way to it. Keys that are absent or null give the default.
class JsonValue {
 public:
  /// `json` must outlive this; `place` is "FILE: KEY.KEY".
  JsonValue(const nlohmann::json& json, std::string place)
      : json_(&json), place_(std::move(place)) {}

  /// Whether the value is there and not null.
  [[nodiscard]] explicit operator bool() const { return !json_->is_null(); }
  [[nodiscard]] const nlohmann::json& json() const { return *json_; }
  [[nodiscard]] const std::string& place() const { return place_; }
  /// Value of a key, null if absent. Errors: "tokenizer-file" if this is no mapping.
  [[nodiscard]] JsonValue operator[](std::string_view key) const;
  /// Values of a list. Errors: "tokenizer-file" if this is no list.
  [[nodiscard]] std::vector<JsonValue> items() const;
  /// The value as T, `fallback` if null. Errors: "tokenizer-file" if it has another type.
  [[nodiscard]] std::string text(std::string_view fallback = {}) const;
  [[nodiscard]] bool flag(bool fallback) const;
  [[nodiscard]] std::int64_t number() const;

 private:
  [[noreturn]] void wrong_type(std::string_view wanted) const;

  const nlohmann::json* json_;
  std::string place_;
};

/// Parses a file's text. Errors: data "tokenizer-file" with line and column.
[[nodiscard]] nlohmann::json parse_tokenizer_json(const std::string& text,
                                                  const std::filesystem::path& path);

/// Ends with data "tokenizer-unsupported": "FILE: KEY: WHAT is not supported; EXPECTED".
[[noreturn]] void unsupported(const JsonValue& value,
                              std::string_view what,
                              std::string_view expected);

/// Adds the mapping token -> id of `vocab`.
void read_vocabulary(const JsonValue& vocab, Vocabulary& vocabulary);

/// Reads `added_tokens` and puts them into the vocabulary. `normalizes`: the tokenizer changes text
/// before it splits it, so tokens to be found after that are not supported.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const JsonValue& added,
                                                        bool normalizes,
                                                        Vocabulary& vocabulary);

}  // namespace colossal::detail
