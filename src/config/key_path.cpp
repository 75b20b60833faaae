// How is a key path split and followed?
#include "config/key_path.hpp"

#include <fmt/format.h>

#include <optional>

namespace colossal::detail {
namespace {

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// Reads "[12]" at `i` and moves behind it; nothing if malformed.
std::optional<Step> read_index(std::string_view path, std::size_t& i) {
  const std::size_t close = path.find(']', i);
  constexpr std::size_t kMaxDigits = 6;
  if (close == std::string_view::npos || close == i + 1 || close - i - 1 > kMaxDigits) {
    return std::nullopt;
  }
  Step step;
  for (std::size_t k = i + 1; k < close; ++k) {
    if (path[k] < '0' || path[k] > '9') {
      return std::nullopt;
    }
    step.index = step.index * 10 + static_cast<std::size_t>(path[k] - '0');
  }
  i = close + 1;
  return step;
}

/// Reads "name", or ".name" if it is not the first, at `i` and moves behind it; nothing if
/// malformed.
std::optional<Step> read_key(std::string_view path, bool first, std::size_t& i) {
  if (!first && path[i++] != '.') {
    return std::nullopt;
  }
  Step step;
  while (i < path.size() && is_key_char(path[i])) {
    step.key += path[i++];
  }
  return step.key.empty() ? std::nullopt : std::optional(step);
}

}  // namespace

std::vector<Step> split_path(std::string_view path) {
  std::vector<Step> steps;
  std::size_t i = 0;
  while (i < path.size()) {
    const bool first = steps.empty();
    const auto step = path[i] == '[' && !first ? read_index(path, i) : read_key(path, first, i);
    if (!step) {
      return {};
    }
    steps.push_back(*step);
  }
  return steps;
}

std::string path_text(const std::vector<Step>& steps) {
  std::string path;
  for (const Step& step : steps) {
    path = step.key.empty() ? fmt::format("{}[{}]", path, step.index) : join_path(path, step.key);
  }
  return path;
}

const Node* child_at(const Node& node, const Step& step) {
  if (!step.key.empty()) {
    return node.find(step.key);
  }
  const bool exists = node.kind == Node::Kind::list && step.index < node.children.size();
  return exists ? &node.children[step.index] : nullptr;
}

Node* child_at(Node& node, const Step& step) {
  return const_cast<Node*>(child_at(static_cast<const Node&>(node), step));
}

}  // namespace colossal::detail
