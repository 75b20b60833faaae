// How is a node written on one line, and in one form?
#include "config/sweep/values.hpp"

#include "config/fields.hpp"
#include "config/scalar.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <type_traits>
#include <utility>

namespace colossal::detail {
namespace {

/// Texts that mean the same without quotes anywhere in YAML.
bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '+' || c == '-' || c == '~';
  });
}

std::string in_quotes(const std::string& text) {
  return nlohmann::json(text).dump();  // YAML reads what JSON writes
}

nlohmann::json plain_scalar(const Node& node) {
  if (node.quoted) {
    return node.text;
  }
  if (const Parsed<bool> flag = parse_bool(node.text); std::holds_alternative<bool>(flag)) {
    return std::get<bool>(flag);
  }
  const Parsed<std::int64_t> whole = parse_int(node.text, /*suffixes=*/true);
  if (std::holds_alternative<std::int64_t>(whole)) {
    return std::get<std::int64_t>(whole);
  }
  const Parsed<double> real = parse_real(node.text);
  return std::holds_alternative<double>(real) ? nlohmann::json(std::get<double>(real))
                                              : nlohmann::json(node.text);
}

/// Paths of the keys that a predicate over slot and spec picks.
template <class Pick>
class KeyPicker : public PathVisitor {
 public:
  explicit KeyPicker(Pick pick) : PathVisitor(true), pick_(std::move(pick)) {}
  [[nodiscard]] std::set<std::string> take() { return std::move(paths_); }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    if (pick_(slot, spec)) {
      paths_.insert(path_of(key));
    }
  }

 private:
  Pick pick_;
  std::set<std::string> paths_;
};

template <class Pick>
std::set<std::string> keys_that(Pick pick) {
  Config defaults;
  KeyPicker<Pick> picker(std::move(pick));
  describe(picker, defaults);
  return picker.take();
}

const std::set<std::string>& path_keys() {
  static const std::set<std::string> keys =
      keys_that([](const Slot& /*slot*/, const Spec& spec) { return spec.form == Form::path; });
  return keys;
}

void make_absolute(Node& node, const std::string& folder) {
  for (Node& child : node.children) {
    if (child.key.empty() || child.key == kSourcePath) {
      make_absolute(child, folder);
    }
  }
  const bool begins_with_use = node.text.starts_with("${");
  if (node.kind == Node::Kind::scalar && !node.text.empty() && !begins_with_use) {
    node.text = (std::filesystem::path(folder) / node.text).lexically_normal().string();
  }
}

void visit_paths(Node& node, const std::string& path, const std::string& folder) {
  if (path_keys().contains(path)) {
    make_absolute(node, folder);
    return;
  }
  for (Node& child : node.children) {
    visit_paths(child, join_path(path, child.key), folder);
  }
}

}  // namespace

std::string flow_yaml(const Node& node) {
  if (node.kind == Node::Kind::null) {
    return "null";
  }
  if (node.kind == Node::Kind::scalar) {
    return node.quoted || !is_plain(node.text) ? in_quotes(node.text) : node.text;
  }
  const bool map = node.kind == Node::Kind::map;
  std::string text(1, map ? '{' : '[');
  for (const Node& child : node.children) {
    text += text.size() > 1 ? ", " : "";
    text += map ? (is_plain(child.key) ? child.key : in_quotes(child.key)) + ": " : "";
    text += flow_yaml(child);
  }
  return text + (map ? '}' : ']');
}

nlohmann::json plain_json(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return nullptr;
    case Node::Kind::scalar:
      return plain_scalar(node);
    case Node::Kind::list:
    case Node::Kind::map:
      break;
  }
  const bool map = node.kind == Node::Kind::map;
  nlohmann::json json = map ? nlohmann::json::object() : nlohmann::json::array();
  for (const Node& child : node.children) {
    (map ? json[child.key] : json.emplace_back()) = plain_json(child);
  }
  return json;
}

Node with_absolute_paths(Node value, const std::string& path, const std::string& folder) {
  visit_paths(value, path, folder);
  return value;
}

bool takes_integers(const std::string& path) {
  static const std::set<std::string> keys = keys_that([](const Slot& slot, const Spec& spec) {
    const bool integer = std::holds_alternative<std::int64_t*>(slot) ||
                         std::holds_alternative<std::optional<std::int64_t>*>(slot);
    return integer && spec.words.empty();
  });
  return keys.contains(path);
}

}  // namespace colossal::detail
