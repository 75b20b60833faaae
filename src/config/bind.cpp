// How is each key looked up, and how is everything that no key asked for reported?
#include "config/bind.hpp"

#include "config/convert.hpp"
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/slips.hpp"
#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace colossal::detail {
namespace {

class Reader : public Visitor {
 public:
  Reader(const KeyTree& tree, Origins& origins, Report& report)
      : origins_(origins), report_(report), tree_(tree) {
    levels_.push_back({&tree.root, "", {}, {}, 0, false});
    Origin top = tree.root.origin;
    top.line = 1;
    top.col = 1;
    origins_.set_section("", top);
  }

  void one_of(std::span<const std::string_view> keys, bool required) override {
    std::vector<const Node*> given;
    for (const std::string_view key : keys) {
      if (const Node* node = value_of(key)) {
        given.push_back(node);
      }
    }
    if (given.size() > 1) {
      report_several(given, keys);
    } else if (given.empty() && required && !levels_.back().silent) {
      report_
          .error("required",
                 path_of(keys.front()),
                 section_origin(),
                 fmt::format("{} needs one of {}", levels_.back().path, join(keys)))
          .fix = fmt::format("add `{}: ...` to `{}`", keys.front(), levels_.back().path);
    }
  }

  void tree(std::string_view key, const Spec& /*spec*/) override {
    levels_.back().known.emplace_back(key);
  }

  /// By key path: what to write out instead of values that hold a secret.
  [[nodiscard]] const std::map<std::string, std::string>& shown() const { return shown_; }

  /// Reports what is left over in the outermost mapping. A required key that is there, misspelt, is
  /// not missing.
  void finish() {
    report_unknown();
    std::erase_if(report_.items(), [&](const Diagnostic& item) {
      return item.id == "required" &&
             std::find(suggested_.begin(), suggested_.end(), item.path) != suggested_.end();
    });
  }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    const Node* node = value_of(key);
    const std::string path = path_of(key);
    levels_.back().known.emplace_back(key);
    if (node != nullptr && wrong_variant(*node, spec)) {
      return;
    }
    if (node == nullptr) {
      require(key, spec);
      keep_null(key, path, spec);
    } else {
      convert(*node, path, slot, spec, report_);
      origins_.set(path, node->origin);
      if (std::string hidden = hidden_text(*node, spec); !hidden.empty()) {
        shown_[path] = std::move(hidden);
      }
    }
    if (spec.selects) {
      note_variant(node, key, slot, !spec.required);
    }
  }

  bool enter(std::string_view key, bool present, const Spec& spec) override {
    const Node* node = value_of(key);
    const std::string path = path_of(key);
    levels_.back().known.emplace_back(key);
    if (node != nullptr && wrong_variant(*node, spec)) {
      return false;
    }
    if (node != nullptr) {
      node = with_implied(*node, spec);
    }
    if (node != nullptr && node->kind != Node::Kind::map) {
      if (report_slip(*node, path, report_)) {
        return false;
      }
      report_kind(*node, path, "mapping", fmt::format("write `{}: {{...}}`", key));
      return false;
    }
    if (node == nullptr && (spec.required || !present)) {
      require(key, spec);
      return false;
    }
    if (node != nullptr) {
      origins_.set_section(path, node->key_origin);
    }
    levels_.push_back({node, path, {}, {}, 0, node == nullptr});
    return true;
  }

  void leave() override {
    report_unknown();
    levels_.pop_back();
  }

  std::size_t enter_list(std::string_view key,
                         std::size_t /*size*/,
                         const Spec& /*spec*/) override {
    const Node* node = value_of(key);
    const std::string path = path_of(key);
    levels_.back().known.emplace_back(key);
    if (node != nullptr && node->kind != Node::Kind::list) {
      report_kind(*node, path, "list", fmt::format("write `{}: [{{...}}]`", key));
      node = nullptr;
    }
    if (node != nullptr) {
      origins_.set(path, node->origin);
    }
    levels_.push_back({node, path, {}, {}, 0, true});
    return node == nullptr ? 0 : node->children.size();
  }

  bool enter_item(std::size_t index) override {
    const Node& node = levels_.back().map->children[index];
    const std::string path = fmt::format("{}[{}]", levels_.back().path, index);
    if (node.kind != Node::Kind::map) {
      report_kind(node, path, "mapping", "write {key: value, ...}");
      return false;
    }
    origins_.set_section(path, node.origin);
    levels_.push_back({&node, path, {}, {}, 0, false});
    return true;
  }

  void leave_list() override { levels_.pop_back(); }

 private:
  struct Level {
    const Node* map;  ///< nullptr: the section is not in the file
    std::string path;
    std::vector<std::string> known;
    Selected by;  ///< no word if there is no such key or its word was wrong
    int by_layer;
    bool silent;  ///< absence of keys was already reported
  };

  [[nodiscard]] std::string path_of(std::string_view key) const {
    return join_path(levels_.back().path, key);
  }
  /// The node of a key of this section, nullptr if absent or null.
  [[nodiscard]] const Node* value_of(std::string_view key) const {
    const Node* map = levels_.back().map;
    const Node* node = map == nullptr ? nullptr : map->find(key);
    return node != nullptr && node->kind != Node::Kind::null ? node : nullptr;
  }
  /// The node of a section as a mapping, where a single value stands for one; with what it implies.
  const Node* with_implied(const Node& node, const Spec& spec) {
    const bool single = node.kind == Node::Kind::scalar && !spec.single.empty();
    const std::string_view implied = single                         ? spec.single_with
                                     : node.kind == Node::Kind::map ? spec.mapping_with
                                                                    : std::string_view();
    if (!single && implied.empty()) {
      return &node;
    }
    Node& made = made_.emplace_back(node);
    if (single) {
      made.kind = Node::Kind::map;
      made.children = {node};
      made.children[0].key = spec.single;
    }
    add_implied(made, implied);
    return &made;
  }

  /// Adds the keys of "key=value key=value" that the mapping does not have.
  static void add_implied(Node& map, std::string_view implied) {
    while (!implied.empty()) {
      const std::string_view one = implied.substr(0, implied.find(' '));
      implied.remove_prefix(std::min(implied.size(), one.size() + 1));
      const std::size_t sign = one.find('=');
      const Node* written = map.find(one.substr(0, sign));
      if (written != nullptr && written->kind != Node::Kind::null) {
        continue;
      }
      std::erase_if(map.children, [&](const Node& child) { return &child == written; });
      Node child;
      child.kind = Node::Kind::scalar;
      child.key = one.substr(0, sign);
      child.text = one.substr(sign + 1);
      child.origin = map.origin;
      child.key_origin = map.key_origin;
      child.layer = map.layer;
      map.children.push_back(std::move(child));
    }
  }

  [[nodiscard]] Origin section_origin() const {
    return origins_.place_for(levels_.back().path + ".");
  }

  /// A null that is a choice counts as given, so that no rule fills the value.
  void keep_null(std::string_view key, const std::string& path, const Spec& spec) {
    const Node* map = levels_.back().map;
    const Node* node = map == nullptr ? nullptr : map->find(key);
    if (spec.null_is_value && node != nullptr && variant_applies(spec, levels_.back().by.word)) {
      origins_.set(path, node->origin);
    }
  }

  void note_variant(const Node* node, std::string_view key, const Slot& slot, bool has_default) {
    Level& level = levels_.back();
    const auto& words = std::get<EnumSlot>(slot).words;
    const bool valid = node == nullptr
                           ? has_default
                           : std::find(words.begin(), words.end(), node->text) != words.end();
    level.by = selected_by(key, slot);
    level.by.word = valid ? level.by.word : std::string_view();
    // A null that undid the word of a lower layer changes it as well.
    const Node* written = level.map == nullptr ? nullptr : level.map->find(key);
    level.by_layer = written == nullptr ? 0 : written->layer;
  }

  void report_kind(const Node& node,
                   const std::string& path,
                   std::string_view wanted,
                   std::string fix) {
    std::string text = fmt::format("{} is {}, not a {}", path, kind_text(node), wanted);
    report_.error("wrong-type", path, node.origin, std::move(text)).fix = std::move(fix);
  }

  /// Whether the key belongs to another word of the key that selects. One inherited from an earlier
  /// layer than that word is dropped.
  bool wrong_variant(const Node& node, const Spec& spec) {
    const Level& level = levels_.back();
    if (level.by.word.empty() || variant_applies(spec, level.by.word)) {
      return false;
    }
    if (tree_.stored && node.layer == 1) {
      return true;  // programs before wrote the keys of all words
    }
    const std::string path = path_of(node.key);
    const std::string by = path_of(level.by.key);
    const std::string now = fmt::format("{} {}", level.by.key, level.by.word);
    const std::string message =
        fmt::format("{} belongs to {} {}", path, by, either_word(spec.variant));
    if (node.layer < level.by_layer) {
      report_.note("dropped-by-type",
                   path,
                   node.key_origin,
                   fmt::format("{}; it is dropped with {}", message, now));
      return true;
    }
    const bool preset = path == "model.preset";
    const std::string text =
        preset ? fmt::format("preset {} is not of {} {}", node.text, by, level.by.word)
               : fmt::format("{}; with {} it has no effect", message, now);
    Diagnostic& error = preset ? report_.error("preset-type", path, node.origin, text)
                               : report_.error("unused-section", path, node.key_origin, text);
    error.value = flow_text(node);
    error.related.push_back({by, std::string(level.by.word), origins_.of(by)});
    error.fix = fmt::format("remove it, or set {}: {}", level.by.key, either_word(spec.variant));
    return true;
  }

  void require(std::string_view key, const Spec& spec) {
    const Level& level = levels_.back();
    const bool lifted = !spec.unless.empty() && value_of(spec.unless) != nullptr;
    const std::string_view words = required_words(spec);
    const bool other = !words.empty() && !among_words(level.by.word, words);
    if (!spec.required || level.silent || lifted || other) {
      return;
    }
    const std::string path = path_of(key);
    Diagnostic& error =
        report_.error("required", path, required_place(key), fmt::format("{} is required", path));
    error.why = std::string(spec.help);
    error.fix = fmt::format(
        "add `{}: ...`{}", key, spec.unless.empty() ? "" : fmt::format(", or a {}", spec.unless));
    if (path == "data.tokenizer") {
      error.fix = "add `tokenizer: {type: byte}`";
    }
  }

  /// A null that undid the value is the place; else the section is.
  [[nodiscard]] Origin required_place(std::string_view key) const {
    const Node* map = levels_.back().map;
    const Node* null = map == nullptr ? nullptr : map->find(key);
    return null != nullptr ? null->origin : section_origin();
  }

  void report_several(const std::vector<const Node*>& given,
                      std::span<const std::string_view> keys) {
    const Node& second = *given[1];
    Diagnostic& error =
        report_.error("one-of",
                      path_of(second.key),
                      second.key_origin,
                      fmt::format("{} and {} cannot both be given", given[0]->key, second.key));
    error.value = flow_text(second);
    error.related.push_back({path_of(given[0]->key), flow_text(*given[0]), given[0]->origin});
    error.why = fmt::format("at most one of {} decides", join(keys));
    error.fix = fmt::format("remove one; `{}: null` undoes an inherited value", given[0]->key);
  }

  void report_unknown() {
    const Level& level = levels_.back();
    if (level.map == nullptr) {
      return;
    }
    for (const Node& child : level.map->children) {
      if (std::find(level.known.begin(), level.known.end(), child.key) == level.known.end()) {
        report_unknown_key(child);
      }
    }
  }

  void report_unknown_key(const Node& child) {
    const Level& level = levels_.back();
    const std::string where =
        level.path.empty() ? std::string(tree_.what) : fmt::format("`{}`", level.path);
    const std::string path = path_of(child.key);
    Diagnostic& error = report_.error("unknown-key",
                                      path,
                                      child.key_origin,
                                      fmt::format("`{}` is not a key of {}", child.key, where));
    error.value = flow_text(child);
    if (const auto best = suggest_key(level.path, child.key, level.known, tree_.paths)) {
      error.message += fmt::format("; did you mean `{}`?", *best);
      error.fix = fmt::format("use {}", *best);
      suggested_.push_back(*best);
    } else {
      error.fix = fmt::format("remove it; keys here: {}", fmt::join(level.known, ", "));
    }
  }

  Origins& origins_;
  Report& report_;
  const KeyTree& tree_;
  std::vector<std::string> suggested_;
  std::map<std::string, std::string> shown_;
  std::deque<Node> made_;  ///< by with_implied(); levels point at them
  std::vector<Level> levels_;
};

void check_version(const Config& config, const Origins& origins, Report& report) {
  if (config.version > 1) {
    Diagnostic& error = report.error("version-newer",
                                     "version",
                                     origins.place_for("version"),
                                     fmt::format("version {} is newer than this binary, which "
                                                 "knows 1",
                                                 config.version));
    error.value = std::to_string(config.version);
    error.fix = "write version: 1, or use a newer colossal-train";
  }
}

}  // namespace

std::map<std::string, std::string> bind_keys(const KeyTree& tree,
                                             const std::function<void(Visitor&)>& walk,
                                             Origins& origins,
                                             Report& report) {
  Reader reader(tree, origins, report);
  walk(reader);
  reader.finish();
  return reader.shown();
}

void bind(const Node& root, bool stored, Config& config, Origins& origins, Report& report) {
  config.secrets.shown = bind_keys(
      {.root = root, .what = "the configuration", .paths = all_paths(), .stored = stored},
      [&](Visitor& v) { describe(v, config); },
      origins,
      report);
  // Written but equal to the default counts as not written, so that a resolved file loads to the
  // same object.
  config.optimizer.no_decay_given = config.optimizer.no_decay != OptimizerConfig{}.no_decay;
  check_version(config, origins, report);
}

}  // namespace colossal::detail
