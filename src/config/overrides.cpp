// How is one --set parsed, walked and applied?
#include "config/overrides.hpp"

#include "config/key_path.hpp"
#include "config/parse.hpp"

#include <fmt/format.h>

#include <array>
#include <map>

namespace colossal::detail {
namespace {

struct KeyValue {
  std::string path;
  std::vector<Step> steps;
  char sign = '=';  ///< '=' a value follows, '@' a file name
  std::string rest;
};

std::optional<KeyValue> parse_override(const std::string& text,
                                       const Origin& origin,
                                       Report& report) {
  const std::size_t sign = text.find_first_of("=@");
  KeyValue parsed;
  if (sign != std::string::npos) {
    parsed.path = text.substr(0, sign);
    parsed.steps = split_path(parsed.path);
    parsed.sign = text[sign];
    parsed.rest = text.substr(sign + 1);
  }
  if (parsed.steps.empty()) {
    report
        .error(
            "override-syntax", "", origin, fmt::format("'{}' is not KEY=VALUE or KEY@FILE", text))
        .fix = "for example --set optimizer.lr=1e-4 or --set data.train[0]=a.txt";
    return std::nullopt;
  }
  return parsed;
}

class Applier {
 public:
  Applier(Node& root, Composer& composer, Report& report)
      : root_(root), composer_(composer), report_(report), layer_(composer.next_layer()) {}

  void apply(const std::string& text, const Origin& origin) {
    const auto parsed = parse_override(text, origin, report_);
    if (!parsed) {
      return;
    }
    std::optional<Node> value = read_value(*parsed, origin);
    if (!value) {
      return;
    }
    if (parsed->steps.back().key == "extends") {
      report_.error("override-path", parsed->path, origin, "`extends` works only inside files")
          .fix = "--set KEY@FILE reads a value from a file";
      return;
    }
    note_shadowed(parsed->path, origin);
    if (Node* target = walk(*parsed, origin)) {
      value->key = target->key;
      value->key_origin = origin;
      raise(*value);
      replace(*target, std::move(*value));
    }
  }

 private:
  std::optional<Node> read_value(const KeyValue& parsed, const Origin& origin) {
    if (parsed.sign == '@') {
      return composer_.load_value(parsed.rest, origin);
    }
    return parse_yaml(parsed.rest, origin, false, report_);
  }

  void note_shadowed(const std::string& path, const Origin& origin) {
    const auto [it, fresh] = seen_.try_emplace(path, origin);
    if (!fresh && it->second.file == origin.file) {
      report_.note("override-shadowed",
                   path,
                   it->second,
                   fmt::format("{} is set again by {}; the last one wins", path, place(origin)));
      it->second = origin;
    }
  }

  /// Every node of an override belongs to the highest layer, whatever file it was read from.
  void raise(Node& node) const {
    node.layer = layer_;
    for (Node& child : node.children) {
      raise(child);
    }
  }

  /// The node to replace; missing mappings are made on the way. nullptr after reporting.
  Node* walk(const KeyValue& parsed, const Origin& origin) {
    Node* node = &root_;
    std::string path;
    for (const Step& step : parsed.steps) {
      node = step.key.empty() ? item(*node, step.index, path, origin)
                              : entry(*node, step.key, path, origin);
      if (node == nullptr) {
        return nullptr;
      }
      path = step.key.empty() ? fmt::format("{}[{}]", path, step.index) : join_path(path, step.key);
    }
    return node;
  }

  Node* item(Node& list, std::size_t index, const std::string& path, const Origin& origin) {
    if (list.kind == Node::Kind::list && index < list.children.size()) {
      return &list.children[index];
    }
    const bool is_list = list.kind == Node::Kind::list;
    Diagnostic& error = report_.error(
        "index-range",
        path,
        origin,
        is_list
            ? fmt::format("{} has {} items; there is no [{}]", path, list.children.size(), index)
            : fmt::format("{} is not a list in the file", path));
    error.why = "an index edits an existing item; it never appends";
    error.fix = fmt::format("give the whole list: --set {}=[...]", path);
    return nullptr;
  }

  Node* entry(Node& map, const std::string& key, const std::string& path, const Origin& origin) {
    if (map.kind == Node::Kind::null) {
      map.kind = Node::Kind::map;
      map.origin = origin;
      map.layer = layer_;
    }
    if (map.kind != Node::Kind::map) {
      report_
          .error(
              "override-path",
              path,
              origin,
              fmt::format(
                  "{} is {}, not a mapping: {}.{} cannot be set", path, kind_text(map), path, key))
          .fix = fmt::format("set {} itself", path);
      return nullptr;
    }
    if (Node* known = map.find(key)) {
      return known;
    }
    Node& made = map.children.emplace_back();
    made.key = key;
    made.key_origin = origin;
    made.origin = origin;
    made.layer = layer_;
    return &made;
  }

  Node& root_;
  Composer& composer_;
  Report& report_;
  int layer_;
  std::map<std::string, Origin> seen_;
};

Origin flag_origin(const char* flag, int number) {
  Origin origin;
  origin.file = flag;
  origin.line = number;
  return origin;
}

/// A plain string as a node, for dedicated flags: never parsed as YAML.
void set_string(Node& root,
                const std::array<const char*, 2>& path,
                const std::string& value,
                const Origin& origin) {
  Node* node = &root;
  for (const char* key : path) {
    if (node->kind == Node::Kind::null) {
      node->kind = Node::Kind::map;
    }
    if (node->kind != Node::Kind::map) {
      return;  // reported as wrong-type when the section is read
    }
    Node* child = node->find(key);
    if (child == nullptr) {
      child = &node->children.emplace_back();
      child->key = key;
      child->key_origin = origin;
    }
    node = child;
  }
  node->kind = Node::Kind::scalar;
  node->text = value;
  node->origin = origin;
  node->children.clear();
}

}  // namespace

void apply_overlays(Node& root, const LoadOptions& options, Composer& composer) {
  int number = 0;
  for (const std::string& file : options.overlays) {
    if (auto overlay = composer.load(file, flag_origin("--config-overlay", ++number))) {
      merge(root, std::move(*overlay));
    }
  }
}

void apply_overrides(Node& root, const LoadOptions& options, Composer& composer, Report& report) {
  Applier applier(root, composer, report);
  int number = 0;
  for (const Override& item : options.overrides) {
    applier.apply(
        item.text,
        item.by.empty() ? flag_origin("--set", ++number) : flag_origin(item.by.c_str(), 1));
  }
  if (options.output_dir) {
    set_string(root, {"run", "output_dir"}, *options.output_dir, flag_origin("--output-dir", 0));
  }
  if (options.resume) {
    set_string(root, {"checkpoint", "resume"}, *options.resume, flag_origin("--resume", 0));
  }
}

}  // namespace colossal::detail
