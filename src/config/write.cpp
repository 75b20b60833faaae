// How is a configuration written back as YAML, whole or only where it differs from what load()
// would find by itself?
#include "config/derive.hpp"
#include "config/explain.hpp"
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/tree.hpp"
#include "core/hash.hpp"

#include <fmt/format.h>

#include <map>

namespace colossal {
namespace detail {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

/// Emits `key: value` lines, sections by indentation, items of lists of mappings as `- {...}`. Keys
/// whose text is in `omitted` are left out, and sections that thereby hold nothing.
class Writer : public Visitor {
 public:
  /// `comments`: what to write behind the value of a key, by path.
  Writer(Texts omitted, const Secrets& secrets, Texts comments = {})
      : omitted_(std::move(omitted)), shown_(secrets.shown), comments_(std::move(comments)) {}

  [[nodiscard]] std::string take() { return std::move(out_); }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    if (key == "type") {
      const auto& type = std::get<EnumSlot>(slot);
      levels_.back().variant = type.words[*type.value];
    }
    if (applies(spec)) {
      const auto hidden = shown_.find(join_path(levels_.back().path, key));
      write(key, hidden == shown_.end() ? slot_text(slot, spec) : hidden->second);
    }
  }

  bool enter(std::string_view key, bool present, const Spec& spec) override {
    if (!applies(spec)) {
      return false;
    }
    if (!present) {
      write(key, "null");
      return false;
    }
    levels_.push_back({join_path(levels_.back().path, key), std::string(key), "", false});
    return true;
  }
  void leave() override {
    if (in_item_) {
      out_ += fmt::format("{:{}}- {{{}}}\n", "", 2 * (depth() - 1), item_);
      in_item_ = false;
    }
    levels_.pop_back();
  }

  std::size_t enter_list(std::string_view key, std::size_t size, const Spec& /*spec*/) override {
    if (size == 0) {
      write(key, "[]");
    }
    levels_.push_back({join_path(levels_.back().path, key), std::string(key), "", false});
    return size;
  }
  bool enter_item(std::size_t index) override {
    open_sections();
    levels_.push_back({fmt::format("{}[{}]", levels_.back().path, index), "", "", true});
    item_.clear();
    in_item_ = true;
    return true;
  }
  void leave_list() override { levels_.pop_back(); }

 private:
  struct Level {
    std::string path;
    std::string key;
    std::string_view variant;
    bool opened;
  };

  [[nodiscard]] std::size_t depth() const { return levels_.size() - 1; }
  [[nodiscard]] bool applies(const Spec& spec) const {
    return variant_applies(spec, levels_.back().variant);
  }

  /// Writes the headers of sections whose first key is about to follow.
  void open_sections() {
    for (std::size_t i = 1; i < levels_.size(); ++i) {
      if (!levels_[i].opened) {
        out_ += fmt::format("{:{}}{}:\n", "", 2 * (i - 1), levels_[i].key);
        levels_[i].opened = true;
      }
    }
  }

  void write(std::string_view key, const std::string& text) {
    if (in_item_) {
      item_ += fmt::format("{}{}: {}", item_.empty() ? "" : ", ", key, text);
      return;
    }
    const std::string path = join_path(levels_.back().path, key);
    const auto it = omitted_.find(path);
    if (it == omitted_.end() || it->second != text) {
      open_sections();
      const auto comment = comments_.find(path);
      out_ += fmt::format("{:{}}{}: {}{}\n",
                          "",
                          2 * depth(),
                          key,
                          text,
                          comment == comments_.end() ? "" : "  # " + comment->second);
    }
  }

  Texts omitted_;
  std::map<std::string, std::string> shown_;
  Texts comments_;
  std::string out_;
  std::string item_;
  bool in_item_ = false;
  std::vector<Level> levels_ = {{"", "", "", true}};
};

std::string write(const Config& config, Texts omitted, Texts comments = {}) {
  Config copy = config;
  Writer writer(std::move(omitted), config.secrets, std::move(comments));
  describe(writer, copy);
  return writer.take();
}

/// Collects keys that must always be written.
class RequiredKeys : public PathVisitor {
 public:
  RequiredKeys() : PathVisitor(true) {}
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

 protected:
  void on_field(std::string_view key, const Slot& /*slot*/, const Spec& spec) override {
    if (spec.required && spec.unless.empty()) {
      paths_.push_back(path_of(key));
    }
  }

 private:
  std::vector<std::string> paths_;
};

/// The schema defaults of the variants that `config` uses.
Config defaults_like(const Config& config) {
  Config defaults;
  defaults.model.type = config.model.type;
  defaults.data.type = config.data.type;
  defaults.optimizer.type = config.optimizer.type;
  defaults.scheduler.type = config.scheduler.type;
  return defaults;
}

/// Texts of the values that load() would find without being told.
Texts found_by_itself(const Config& config) {
  Texts texts;
  for (FlatField& field : flatten(defaults_like(config))) {
    texts[field.path] = std::move(field.text);
  }
  texts["scheduler.type"] = yaml_word(SchedulerConfig{}.type);
  for (FlatField& field : flatten(rederive(config))) {
    const bool from_preset = !config.model.preset.empty() && is_preset_key(field.path);
    if (field.derived || from_preset) {
      texts[field.path] = std::move(field.text);
    }
  }
  RequiredKeys required;
  Config scratch;
  describe(required, scratch);
  for (const std::string& path : required.paths()) {
    texts.erase(path);
  }
  texts.erase("version");  // what a later program takes for its own default
  return texts;
}

}  // namespace
}  // namespace detail

std::string to_yaml(const Config& config) {
  return detail::write(config, {});
}

std::string to_minimal_yaml(const Config& config) {
  return detail::write(config, detail::found_by_itself(config));
}

std::string to_yaml_with_origins(const Loaded& loaded) {
  detail::Texts comments;
  for (const detail::FlatField& field : detail::flatten(loaded.config)) {
    const auto origin = loaded.origins.find(field.path);
    comments[field.path] =
        origin == loaded.origins.end() ? "<default>" : detail::place(origin->second);
  }
  return detail::write(loaded.config, {}, std::move(comments));
}

std::string config_hash(const Config& config) {
  return sha256(to_yaml(config));
}

std::string yaml_word(Placement value) {
  return std::string(detail::word(value));
}
std::string yaml_word(ActivationKind value) {
  return std::string(detail::word(value));
}
std::string yaml_word(Precision value) {
  return std::string(detail::word(value));
}
std::string yaml_word(ModelType value) {
  return std::string(detail::word(value));
}
std::string yaml_word(OptimizerType value) {
  return std::string(detail::word(value));
}
std::string yaml_word(SchedulerType value) {
  return std::string(detail::word(value));
}
std::string yaml_word(DataType value) {
  return std::string(detail::word(value));
}

}  // namespace colossal
