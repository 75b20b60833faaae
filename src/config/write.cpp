// How is a configuration written back as YAML, whole or only where it differs from what load()
// would find by itself?
#include "config/derive.hpp"
#include "config/explain.hpp"
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/tree.hpp"
#include "core/hash.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <vector>

namespace colossal {
namespace detail {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

/// What stands between a value and its comment.
constexpr std::string_view kComment = "  # ";

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
    if (spec.selects) {
      levels_.back().variant = selected_by(key, slot).word;
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
      out_ += fmt::format("{:{}}- {{{}}}{}\n", "", 2 * (depth() - 1), item_, behind(item_comment_));
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
    item_comment_.clear();
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

  /// A comment as it stands behind a value; nothing for none.
  static std::string behind(const std::string& comment) {
    return comment.empty() ? "" : std::string(kComment) + comment;
  }

  [[nodiscard]] std::string comment_of(const std::string& path) const {
    const auto comment = comments_.find(path);
    return comment == comments_.end() ? std::string() : comment->second;
  }

  void write_in_item(std::string_view key, const std::string& path, const std::string& text) {
    item_ += fmt::format("{}{}: {}", item_.empty() ? "" : ", ", key, text);
    const std::string comment = comment_of(path);
    const std::string told = ", " + item_comment_ + ", ";
    if (!comment.empty() && told.find(", " + comment + ", ") == std::string::npos) {
      item_comment_ += (item_comment_.empty() ? "" : ", ") + comment;
    }
  }

  void write(std::string_view key, const std::string& text) {
    const std::string path = join_path(levels_.back().path, key);
    if (in_item_) {
      write_in_item(key, path, text);
      return;
    }
    const auto it = omitted_.find(path);
    if (it == omitted_.end() || it->second != text) {
      open_sections();
      out_ += fmt::format("{:{}}{}: {}{}\n", "", 2 * depth(), key, text, behind(comment_of(path)));
    }
  }

  Texts omitted_;
  std::map<std::string, std::string> shown_;
  Texts comments_;
  std::string out_;
  std::string item_;
  std::string item_comment_;
  bool in_item_ = false;
  std::vector<Level> levels_ = {{"", "", "", true}};
};

std::string write(const Config& config, Texts omitted, Texts comments = {}) {
  Config copy = config;
  Writer writer(std::move(omitted), config.secrets, std::move(comments));
  describe(writer, copy);
  return writer.take();
}

/// `text` as a comment that does not look like the end of a value.
std::string comment_text(const std::string& text) {
  std::string clean;
  for (const char c : text) {
    const char shown = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    if (shown != ' ' || clean.empty() || clean.back() != ' ') {
      clean += shown;
    }
  }
  return clean;
}

std::string header_of(std::string_view body) {
  constexpr std::size_t kDigits = 16;
  return fmt::format(
      "# Resolved by colossal-train: values, and where each comes from. Checksum {}\n",
      sha256(body).substr(0, kDigits));
}

/// Comments of files that to_yaml_with_origins() has written and nobody has changed since: a value
/// that is read from there keeps its first origin.
class FirstOrigins {
 public:
  /// The comment of the line that `origin` names; empty if its file is another one.
  [[nodiscard]] std::string of(const Origin& origin) {
    const auto [it, fresh] = files_.try_emplace(origin.file);
    if (fresh) {
      read(origin.file, it->second);
    }
    const auto index = static_cast<std::size_t>(origin.line - 1);
    const bool within = origin.line > 0 && index < it->second.size();
    const std::size_t at = within ? it->second[index].rfind(kComment) : std::string::npos;
    return at == std::string::npos ? "" : it->second[index].substr(at + kComment.size());
  }

 private:
  static void read(const std::string& file, std::vector<std::string>& lines) {
    std::error_code ignored;
    const std::string text = read_file(file, ignored).value_or("");
    const std::size_t first = std::min(text.find('\n'), text.size() - 1) + 1;
    if (text.empty() || text.substr(0, first) != header_of(std::string_view(text).substr(first))) {
      return;
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  std::map<std::string, std::vector<std::string>> files_;
};

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
  detail::FirstOrigins first;
  detail::Texts comments;
  for (const detail::FlatField& field : detail::flatten(loaded.config)) {
    const auto origin = loaded.origins.find(field.path);
    const bool known = origin != loaded.origins.end();
    const std::string before = known ? first.of(origin->second) : "";
    const std::string now =
        known ? detail::comment_text(detail::place(origin->second)) : "<default>";
    comments[field.path] = before.empty() ? now : before;
  }
  const std::string body = detail::write(loaded.config, {}, std::move(comments));
  return detail::header_of(body) + body;
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
