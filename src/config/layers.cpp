// How is the past of each key found in the composed tree?
#include "config/layers.hpp"

#include "config/key_path.hpp"

#include <fmt/format.h>

#include <set>

namespace colossal::detail {
namespace {

/// Adds the paths of all single values and lists below `node`, also of what was replaced.
void collect(const Node& node, const std::string& path, std::set<std::string>& paths) {
  for (const Node& earlier : node.before) {
    collect(earlier, path, paths);
  }
  if (node.kind != Node::Kind::map) {
    paths.insert(path);
    return;
  }
  for (const Node& child : node.children) {
    collect(child, join_path(path, child.key), paths);
  }
}

/// Appends what `node` and those before it say about the key that `steps` lead to from here.
void follow(const Node& node,
            const std::vector<Step>& steps,
            std::size_t at,
            std::vector<Related>& found) {
  for (const Node& earlier : node.before) {
    follow(earlier, steps, at, found);
  }
  if (at < steps.size() && node.kind == Node::Kind::map) {
    if (const Node* child = child_at(node, steps[at])) {
      follow(*child, steps, at + 1, found);
    }
    return;
  }
  if (at == steps.size() || !found.empty()) {
    found.push_back({path_text({steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(at)}),
                     flow_text(node),
                     node.origin});
  }
}

}  // namespace

std::map<std::string, std::vector<Related>> layers_of(const Node& root) {
  std::set<std::string> paths;
  collect(root, "", paths);
  std::map<std::string, std::vector<Related>> layers;
  for (const std::string& path : paths) {
    follow(root, split_path(path), 0, layers[path]);
  }
  return layers;
}

}  // namespace colossal::detail
