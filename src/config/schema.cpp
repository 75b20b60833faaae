// How does the field registry become a JSON Schema (draft-07) for editors and tools?
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/load.hpp"
#include "config/scalar.hpp"
#include "config/schema_values.hpp"
#include "config/tree.hpp"
#include "core/json.hpp"

#include <fmt/format.h>

#include <map>

namespace colossal {
namespace detail {
namespace {

Json closed_object() {
  Json object;
  object["type"] = "object";
  object["properties"] = Json::object();
  object["properties"]["extends"] = {{"description", "file or files this mapping starts from"},
                                     {"type", {"string", "array", "null"}},
                                     {"items", {{"type", "string"}}}};
  object["additionalProperties"] = false;
  return object;
}

/// Words in mixed case are texts to YAML readers; "true" in quotes is refused.
constexpr const char* kMixedCase = "^(?!true$|false$)([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$";

/// A word as YAML readers see it.
Json word_value(std::string_view word) {
  const bool truth = word == "true";
  return truth || word == "false" ? Json(truth) : Json(std::string(word));
}

template <class Words>
Json enum_schema(const Words& words) {
  Json list = Json::array();
  for (const std::string_view word : words) {
    list.push_back(word_value(word));
  }
  const bool truth = list.front().is_boolean();
  Json use = {{"type", "string"},
              {"pattern", truth ? fmt::format("{}|{}", kMixedCase, kUse) : std::string(kUse)}};
  return {{"anyOf", {{{"enum", list}}, use}}};
}

Json schema_of(const bool* /*value*/, const Spec& /*spec*/) {
  return {{"type", {"boolean", "string"}}, {"pattern", fmt::format("{}|{}", kMixedCase, kUse)}};
}
Json schema_of(const std::int64_t* /*value*/, const Spec& spec) {
  return integer_schema(spec);
}
Json schema_of(const double* /*value*/, const Spec& spec) {
  return real_schema(spec);
}
Json schema_of(const std::string* /*value*/, const Spec& spec) {
  if (!spec.words.empty() && spec.form != Form::path) {
    return enum_schema(spec.words);
  }
  // Numbers and words such as `no` stay text for us, whatever a YAML reader makes of them.
  return {{"type", {"string", "number", "boolean"}}, {"minLength", 1}};
}
Json schema_of(const DataSource* /*value*/, const Spec& spec) {
  const std::string* path = nullptr;
  Json object = closed_object();
  object["properties"][std::string(kSourcePath)] = schema_of(path, spec);
  Json weight = real_schema({.range = above(0)});
  weight["type"].push_back("null");
  object["properties"][std::string(kSourceWeight)] = weight;
  object["anyOf"] = {{{"required", {std::string(kSourcePath)}}}, {{"required", {"extends"}}}};
  return {{"anyOf", {schema_of(path, spec), object}}};
}
template <class T>
Json schema_of(const std::optional<T>* /*value*/, const Spec& spec) {
  const T* none = nullptr;
  return schema_of(none, spec);
}
template <class T>
Json schema_of(const std::vector<T>* /*value*/, const Spec& spec) {
  const T* none = nullptr;
  Json schema = {{"type", {"array"}}, {"items", schema_of(none, spec)}};
  if (spec.length != 0) {
    schema["minItems"] = spec.length;
    schema["maxItems"] = spec.length;
  } else if (spec.required) {
    schema["minItems"] = 1;
  }
  if (std::is_same_v<T, std::int64_t> && !spec.words.empty()) {
    Json either = enum_schema(spec.words);
    either["anyOf"].push_back(schema);
    return either;
  }
  return schema;
}

Json default_of(bool value) {
  return value;
}
Json default_of(std::int64_t value) {
  return value;
}
Json default_of(double value) {
  return number(value);
}
Json default_of(const std::string& value) {
  return value;
}
Json default_of(const DataSource& value) {
  return value.path;
}
template <class T>
Json default_of(const std::optional<T>& value) {
  return value ? default_of(*value) : Json(nullptr);
}
template <class T>
Json default_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) {
    list.push_back(default_of(value));
  }
  return list;
}

/// null means "use the default" wherever there is one.
void allow_null(Json& schema) {
  if (schema.contains("anyOf")) {
    schema["anyOf"][0]["enum"].push_back(nullptr);
  } else {
    schema["type"].push_back("null");
  }
}

Json non_null(std::string_view key) {
  const std::string name(key);
  return {{"type", "object"},
          {"required", {name}},
          {"properties", {{name, {{"not", {{"type", "null"}}}}}}}};
}

/// Builds two trees side by side: what keys look like, and what must be present unless something is
/// inherited.
class SchemaWriter : public Visitor {
 public:
  /// The closed object of all keys; what must be there is needed unless another file is extended.
  [[nodiscard]] Json take() {
    Level& top = levels_.front();
    finish(top);
    Json schema = top.schema;
    schema["if"] = {{"not", {{"required", {"extends"}}}}};
    schema["then"] = top.needs;
    return schema;
  }

  void tree(std::string_view key, const Spec& spec) override { add(key, Json::object(), spec); }

  void one_of(std::span<const std::string_view> keys, bool required) override {
    Json choices = Json::array();
    Json none = Json::array();
    for (const std::string_view key : keys) {
      choices.push_back(non_null(key));
      none.push_back(non_null(key));
    }
    Level& level = levels_.back();
    if (required) {
      level.needs["allOf"].push_back({{"anyOf", choices}});
    }
    Json pairs = Json::array();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      for (std::size_t j = i + 1; j < keys.size(); ++j) {
        level.schema["allOf"].push_back(
            {{"not", {{"allOf", {non_null(keys[i]), non_null(keys[j])}}}}});
      }
    }
  }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    Json schema = std::visit(
        [&](const auto& value) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, EnumSlot>) {
            return enum_schema(value.words);
          } else {
            return schema_of(value, spec);
          }
        },
        slot);
    add_default(schema, slot, spec);
    // null takes back what an inherited word needed, where the new one does not know the key.
    if (!spec.required || !spec.unless.empty() || !spec.variant.empty()) {
      allow_null(schema);
    }
    if (spec.selects) {
      levels_.back().by = selected_by(key, slot);
      levels_.back().standard = spec.required ? std::string_view() : levels_.back().by.word;
    }
    add(key, std::move(schema), spec);
  }

  bool enter(std::string_view key, bool /*present*/, const Spec& spec) override {
    add(key, Json::object(), spec);
    levels_.push_back({.key = std::string(key), .spec = spec});
    return true;
  }
  void leave() override {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    finish(level);
    if (!level.spec.required || !level.spec.required_for.empty()) {
      level.schema["type"] = {"object", "null"};
    }
    Level& parent = levels_.back();
    merge(parent.schema["properties"][level.key],
          level.spec.single.empty() ? level.schema : or_single(level));
    if (!level.needs.empty()) {
      parent.needs["properties"][level.key] = {{"if", {{"not", {{"required", {"extends"}}}}}},
                                               {"then", level.needs}};
    }
  }

  std::size_t enter_list(std::string_view key, std::size_t /*size*/, const Spec& spec) override {
    add(key, Json::object(), spec);
    levels_.push_back({.key = std::string(key), .spec = spec});
    return 1;
  }
  bool enter_item(std::size_t /*index*/) override {
    levels_.push_back({.key = "items", .spec = {.required = true}});
    return true;
  }
  void leave_list() override {
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    Json items = level.schema["properties"]["items"];
    if (level.needs.contains("properties")) {
      merge(items, level.needs["properties"]["items"]);
    }
    const Json list = {{"type", {"array", "null"}}, {"items", items}};
    merge(levels_.back().schema["properties"][level.key], list);
  }

 private:
  struct Level {
    std::string key = {};
    Json schema = closed_object();
    Json needs = Json::object();
    std::map<std::string, std::vector<std::string>> by_variant = {};  ///< that only one word knows
    std::map<std::string, std::vector<std::string>> needed_by = {};   ///< that one word requires
    Selected by = {};                                                 ///< who has these words
    std::string_view standard = {};  ///< its default; empty: it must be given
    Spec spec = {};
  };

  /// The mapping, or the value of its one key.
  static Json or_single(const Level& level) {
    Json single = level.schema["properties"][std::string(level.spec.single)];
    single.erase("description");
    single.erase("default");
    return {{"anyOf", {single, level.schema}}};
  }

  static void merge(Json& target, const Json& more) {
    for (const auto& [key, value] : more.items()) {
      target[key] = value;
    }
  }

  static void add_default(Json& schema, const Slot& slot, const Spec& spec) {
    if (spec.required || !spec.derived.empty()) {
      return;
    }
    schema["default"] = std::visit(
        [&](const auto& value) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, EnumSlot>) {
            return word_value(value.words[*value.value]);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string*>) {
            return value->empty() ? Json(nullptr) : Json(*value);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double*>) {
            return spec.form == Form::duration ? Json(real_text(*value) + "s") : number(*value);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>,
                                              std::vector<std::int64_t>*>) {
            return spec.words.empty() ? default_of(*value) : Json(slot_text(slot, spec));
          } else {
            return default_of(*value);
          }
        },
        slot);
  }

  void add(std::string_view key, Json schema, const Spec& spec) {
    Level& level = levels_.back();
    const std::string name(key);
    std::string text(spec.help);
    text += spec.derived.empty() ? "" : fmt::format(" (default: {})", spec.derived);
    text += spec.variant.empty()
                ? ""
                : fmt::format(" ({} {} only)", level.by.key, either_word(spec.variant));
    Json property = {{"description", text}};
    merge(property, schema);
    level.schema["properties"][name] = property;
    if (!spec.variant.empty()) {
      level.by_variant[std::string(spec.variant)].push_back(name);
    }
    if (!spec.required) {
      return;
    }
    const std::string variant(required_words(spec));
    if (!spec.unless.empty()) {
      const Json either = {{"anyOf", {non_null(spec.unless), non_null(key)}}};
      level.needs["allOf"].push_back(
          variant.empty() ? either : Json{{"if", word_is(level, variant)}, {"then", either}});
    } else if (!variant.empty()) {
      level.needed_by[variant].push_back(name);
    } else {
      level.needs["required"].push_back(name);
    }
  }

  /// `const` for one word, `enum` for several with spaces between.
  static Json one_of_words(const std::string& words) {
    Json list = Json::array();
    for (std::size_t start = 0; start < words.size();) {
      const std::size_t end = std::min(words.find(' ', start), words.size());
      list.push_back(words.substr(start, end - start));
      start = end + 1;
    }
    return list.size() == 1 ? Json{{"const", list[0]}} : Json{{"enum", list}};
  }

  /// The key that selects has one of these words, also by default.
  [[nodiscard]] static Json word_is(const Level& level, const std::string& words) {
    const std::string key(level.by.key);
    Json condition = {{"properties", {{key, one_of_words(words)}}}};
    if (!among_words(level.standard, words)) {
      condition["required"] = {key};
    }
    return condition;
  }

  /// One if/then per variant: foreign keys are refused, own keys may be required. Where no word is
  /// written, that of an extended file may hold instead of the default.
  static void finish(Level& level) {
    const std::string by(level.by.key);
    for (const auto& [words, keys] : level.by_variant) {
      Json refused = Json::object();
      for (const std::string& key : keys) {
        refused[key] = {{"type", "null"}};
      }
      const Json own = {{"anyOf", {one_of_words(words), {{"type", "string"}, {"pattern", kUse}}}}};
      Json other = {{"properties", {{by, {{"not", own}}}}}, {"required", {by}}};
      const Json then = {{"properties", refused}};
      if (among_words(level.standard, words)) {
        other["properties"][by]["not"]["anyOf"].push_back({{"type", "null"}});
      } else if (!level.standard.empty()) {
        level.needs["allOf"].push_back({{"if", {{"not", {{"required", {by}}}}}}, {"then", then}});
      }
      level.schema["allOf"].push_back({{"if", other}, {"then", then}});
    }
    for (const auto& [words, keys] : level.needed_by) {
      level.needs["allOf"].push_back(
          {{"if", word_is(level, words)}, {"then", {{"required", keys}}}});
    }
  }

  std::vector<Level> levels_ = std::vector<Level>(1);
};

}  // namespace

Json schema_of_keys(const std::function<void(Visitor&)>& walk) {
  SchemaWriter writer;
  walk(writer);
  return writer.take();
}

Json schema_head(std::string_view title) {
  return {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", title}};
}

}  // namespace detail

std::string json_schema() {
  Config defaults;
  detail::Json keys =
      detail::schema_of_keys([&](detail::Visitor& v) { detail::describe(v, defaults); });
  keys["properties"]["vars"] = {
      {"description", "values for ${vars.NAME}"},
      {"type", {"object", "null"}},
      {"propertyNames", {{"pattern", "^[A-Za-z_][A-Za-z0-9_]*$"}}},
      {"additionalProperties", {{"type", {"string", "number", "boolean", "null"}}}}};
  detail::Json schema = detail::schema_head("colossal-train configuration");
  schema.update(keys);
  return schema.dump(2) + "\n";
}

}  // namespace colossal
