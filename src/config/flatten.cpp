// How is a configuration turned into (path, text) pairs?
#include "config/flatten.hpp"

#include "config/scalar.hpp"
#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace colossal::detail {
namespace {

/// Path and variant bookkeeping that every flat walk shares.
class Flattener : public Visitor {
 public:
  explicit Flattener(bool all_variants, const Secrets& secrets = {})
      : all_variants_(all_variants), shown_(secrets.shown) {}

  [[nodiscard]] std::vector<FlatField> take() { return std::move(fields_); }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    if (spec.selects) {
      levels_.back().variant = selected_by(key, slot).word;
    }
    const auto hidden = shown_.find(join_path(levels_.back().path, key));
    add(key, hidden == shown_.end() ? slot_text(slot, spec) : hidden->second, spec);
  }

  bool enter(std::string_view key, bool present, const Spec& spec) override {
    if (!applies(spec)) {
      return false;
    }
    if (all_variants_ || !present) {
      add(key, "null", spec);
    }
    if (!all_variants_ && !present) {
      return false;
    }
    levels_.push_back({join_path(levels_.back().path, key), ""});
    return true;
  }
  void leave() override { levels_.pop_back(); }

  std::size_t enter_list(std::string_view key, std::size_t size, const Spec& spec) override {
    if (size == 0) {
      add(key, "[]", spec);
    }
    levels_.push_back({join_path(levels_.back().path, key), ""});
    return size;
  }
  bool enter_item(std::size_t index) override {
    levels_.push_back({fmt::format("{}[{}]", levels_.back().path, index), ""});
    return true;
  }
  void leave_list() override { levels_.pop_back(); }

 private:
  struct Level {
    std::string path;
    std::string_view variant;
  };

  [[nodiscard]] bool applies(const Spec& spec) const {
    return all_variants_ || variant_applies(spec, levels_.back().variant);
  }

  void add(std::string_view key, std::string text, const Spec& spec) {
    if (applies(spec)) {
      const bool known = !spec.required && spec.derived.empty() && text != "null" &&
                         !text.starts_with('[') && !text.starts_with('"');
      fields_.push_back({join_path(levels_.back().path, key),
                         std::move(text),
                         spec.resume,
                         !spec.derived.empty(),
                         known});
    }
  }

  bool all_variants_;
  std::map<std::string, std::string> shown_;
  std::vector<FlatField> fields_;
  std::vector<Level> levels_ = {{"", ""}};
};

std::string unset_text(const Spec& spec) {
  return spec.all_word ? "all" : spec.auto_word ? "auto" : "null";
}

std::string text_of(bool value, const Spec& /*spec*/) {
  return value ? "true" : "false";
}

std::string text_of(std::int64_t value, const Spec& spec) {
  return value == 0 && !spec.derived.empty() ? unset_text(spec) : std::to_string(value);
}

std::string text_of(double value, const Spec& spec) {
  return real_text(value) + (spec.form == Form::duration ? "s" : "");
}

std::string text_of(const std::string& value, const Spec& spec) {
  return value.empty() ? unset_text(spec) : yaml_string(value);
}

template <class T>
std::string text_of(const std::optional<T>& value, const Spec& spec) {
  return value ? text_of(*value, spec) : unset_text(spec);
}

std::string text_of(const DataSource& value, const Spec& spec) {
  const std::string path = text_of(value.path, spec);
  return value.weight
             ? fmt::format(
                   "{{{}: {}, {}: {}}}", kSourcePath, path, kSourceWeight, real_text(*value.weight))
             : path;
}

template <class T>
std::string text_of(const std::vector<T>& values, const Spec& spec) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    if (!spec.words.empty() && !values.empty() && values.front() < 0) {
      return std::string(spec.words[static_cast<std::size_t>(-1 - values.front())]);
    }
  }
  std::string text = "[";
  for (const T& value : values) {
    text += (text.size() > 1 ? ", " : "") + text_of(value, spec);
  }
  return text + "]";
}

}  // namespace

std::string escape_braces(std::string text) {
  constexpr std::string_view kOpen = "${";
  for (std::size_t at = text.find(kOpen); at != std::string::npos; at = text.find(kOpen, at + 3)) {
    text.insert(at, 1, '$');
  }
  return text;
}

std::string quoted_yaml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  }
  return quoted + "\"";
}

std::string yaml_string(const std::string& text) {
  constexpr std::array<std::string_view, 8> kWords = {
      "null", "true", "false", "yes", "no", "on", "off", "n"};
  const auto plain_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/' || c == '.' || c == '-';
  };
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool word = std::find(kWords.begin(), kWords.end(), lower) != kWords.end() || lower == "y";
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), plain_char) &&
                     text[0] != '-' && text[0] != '.' && !looks_numeric(text);
  if (plain && !word) {
    return text;
  }
  return quoted_yaml(escape_braces(text));
}

std::string slot_text(const Slot& slot, const Spec& spec) {
  return std::visit(
      [&](const auto& value) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, EnumSlot>) {
          return std::string(value.words[*value.value]);
        } else {
          return text_of(*value, spec);
        }
      },
      slot);
}

std::vector<FlatField> flatten(const Config& config) {
  Config copy = config;
  Flattener flattener(false, config.secrets);
  describe(flattener, copy);
  return flattener.take();
}

std::vector<FlatField> all_fields() {
  Config defaults;
  Flattener flattener(true);
  describe(flattener, defaults);
  return flattener.take();
}

std::vector<std::string> all_paths() {
  std::vector<std::string> paths;
  for (FlatField& field : all_fields()) {
    paths.push_back(std::move(field.path));
  }
  return paths;
}

}  // namespace colossal::detail
