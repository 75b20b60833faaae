// How are `extends` chains followed, checked and merged?
#include "config/compose.hpp"

#include "config/parse.hpp"
#include "config/slips.hpp"
#include "config/suggest.hpp"
#include "config/uses.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal::detail {
namespace {

constexpr std::size_t kMaxExtends = 16;

void stamp(Node& node, int layer) {
  if (node.layer == 0) {
    node.layer = layer;
  }
  for (Node& child : node.children) {
    stamp(child, layer);
  }
}

/// Origin of nodes in `file`: the name as shown and the chain of places that included it.
Origin source_of(const std::filesystem::path& file, const std::optional<Origin>& from) {
  Origin base;
  base.file = file.string();
  if (from) {
    base.included_from.push_back(place(*from));
    const auto& outer = from->included_from;
    base.included_from.insert(base.included_from.end(), outer.begin(), outer.end());
  }
  return base;
}

/// What to do about a file that is not there; `from` is the place that named it, if any did.
std::string missing_fix(const std::filesystem::path& file, const std::optional<Origin>& from) {
  if (const auto near = nearest_file(file)) {
    return fmt::format("did you mean {}?", *near);
  }
  const bool by_file = from && !from->file.starts_with("--");
  return by_file ? "check the name; relative names start at the file that contains them"
                 : "check the name; relative names start at the working directory";
}

/// What to do about a folder in the place of a file.
std::string folder_fix(const std::filesystem::path& folder) {
  const std::vector<std::string> names = files_in(folder);
  const bool has_any = std::any_of(
      names.begin(), names.end(), [](const std::string& name) { return name.ends_with(".yaml"); });
  return has_any ? fmt::format("did you mean {}?", (folder / "*.yaml").string())
                 : "name a YAML file";
}

}  // namespace

void merge(Node& base, Node over) {
  if (base.kind != Node::Kind::map || over.kind != Node::Kind::map) {
    replace(base, std::move(over));
    return;
  }
  base.origin = over.origin;
  base.key_origin = over.key_origin;
  base.layer = over.layer;
  for (Node& child : over.children) {
    if (Node* known = base.find(child.key)) {
      merge(*known, std::move(child));
    } else {
      base.children.push_back(std::move(child));
    }
  }
}

void replace(Node& base, Node over) {
  std::vector<Node> before = std::move(base.before);
  base.before.clear();
  // A place that was only made for this value held nothing before.
  const bool made = base.kind == Node::Kind::null && place(base.origin) == place(over.origin);
  if (!made) {
    before.push_back(std::move(base));
  }
  before.insert(before.end(), over.before.begin(), over.before.end());
  over.before = std::move(before);
  base = std::move(over);
}

bool Composer::enter(const std::filesystem::path& file, const Origin& place_of_name) {
  std::error_code ignored;
  const std::string name = std::filesystem::weakly_canonical(file, ignored).string();
  const auto again = std::find(stack_.begin(), stack_.end(), name);
  if (again != stack_.end()) {
    std::string chain;
    for (auto it = again; it != stack_.end(); ++it) {
      chain += std::filesystem::path(*it).filename().string() + " -> ";
    }
    report_
        .error("extends-cycle",
               "",
               place_of_name,
               fmt::format("`extends` runs in a circle: {}{}", chain, file.filename().string()))
        .fix = "remove one of these `extends`";
    return false;
  }
  if (stack_.size() > kMaxExtends) {
    report_
        .error("extends-depth",
               "",
               place_of_name,
               fmt::format("`extends` is nested deeper than {} files", kMaxExtends))
        .fix = "merge some of these files";
    return false;
  }
  stack_.push_back(name);
  return true;
}

std::optional<std::string> Composer::read(const std::filesystem::path& file,
                                          const std::optional<Origin>& from,
                                          const Origin& where) {
  if (texts_ != nullptr) {
    if (const auto it = texts_->find(file.string()); it != texts_->end()) {
      return it->second;
    }
  }
  std::error_code error;
  std::optional<std::string> text = read_file(file, error);  // may be kept, and gone from its place
  if (text) {
    return text;
  }
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    report_.error("file-not-found", "", where, fmt::format("{} does not exist", file.string()))
        .fix = missing_fix(file, from);
    return std::nullopt;
  }
  const bool folder = std::filesystem::is_directory(status);
  const char* what = folder ? "is a folder" : "cannot be read";
  report_.error("file-not-readable", "", where, fmt::format("{} {}", file.string(), what)).fix =
      folder ? folder_fix(file) : "mend its permissions, or name another YAML file";
  return std::nullopt;
}

/// The tree of one file's text with its `extends` resolved.
std::optional<Node> Composer::parse(std::string_view text,
                                    const std::filesystem::path& file,
                                    const Origin& base) {
  std::optional<Node> root = parse_yaml(text, base, file.extension() == ".json", report_);
  if (root) {
    resolve(*root, folder_of(file));
    stamp(*root, next_layer());
  }
  return root;
}

std::optional<Node> Composer::load_value(const std::filesystem::path& file,
                                         const std::optional<Origin>& from) {
  const Origin base = source_of(file, from);
  const Origin where = from.value_or(base);
  if (!enter(file, where)) {
    return std::nullopt;
  }
  std::optional<Node> root;
  if (const auto text = read(file, from, where)) {
    root = parse(*text, file, base);
  }
  stack_.pop_back();
  return root;
}

std::optional<Node> Composer::load(const std::filesystem::path& file,
                                   const std::optional<Origin>& from) {
  return only_mapping(load_value(file, from), source_of(file, from));
}

std::optional<Node> Composer::load_text(std::string_view text, const std::string& name) {
  const Origin base = source_of(name, std::nullopt);
  return only_mapping(parse(text, name, base), base);
}

/// `root` if it is a mapping, as every configuration is; `top` names its file.
std::optional<Node> Composer::only_mapping(std::optional<Node> root, Origin top) {
  if (!root || root->kind == Node::Kind::map) {
    return root;
  }
  top.line = 1;
  top.col = 1;
  if (root->kind == Node::Kind::null) {
    report_.error("empty-config", "", top, "the file holds no configuration").fix =
        "start from an example in configs/";
  } else if (!report_slip(*root, "", report_)) {
    report_
        .error("wrong-type",
               "",
               root->origin,
               fmt::format("the file holds {}, not a mapping of keys", kind_text(*root)))
        .fix = "write `key: value` lines";
  }
  return std::nullopt;
}

std::optional<Node> Composer::parent(const Node& name, const std::filesystem::path& directory) {
  if (name.kind != Node::Kind::scalar || name.text.empty()) {
    report_
        .error("wrong-type",
               "extends",
               name.origin,
               fmt::format("`extends` is {}, not a file name", kind_text(name)))
        .fix = "write `extends: FILE` or `extends: [FILE, FILE]`";
    return std::nullopt;
  }
  if (refuse_interpolation(name.text, name.origin, "`extends`", report_)) {
    return std::nullopt;
  }
  return load((directory / name.text).lexically_normal(), name.origin);
}

void Composer::resolve(Node& node, const std::filesystem::path& directory) {
  for (Node& child : node.children) {
    resolve(child, directory);
  }
  const Node* extends = node.find("extends");
  if (extends == nullptr) {
    return;
  }
  const Node names = *extends;
  std::erase_if(node.children, [](const Node& child) { return child.key == "extends"; });
  if (names.kind == Node::Kind::null) {
    return;
  }
  Node base;
  base.kind = Node::Kind::map;
  const std::vector<Node> list =
      names.kind == Node::Kind::list ? names.children : std::vector<Node>{names};
  for (const Node& name : list) {
    if (auto loaded = parent(name, directory)) {
      merge(base, std::move(*loaded));
    }
  }
  base.key = node.key;
  merge(base, std::move(node));
  node = std::move(base);
}

}  // namespace colossal::detail
