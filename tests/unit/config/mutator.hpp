// How do tests damage a YAML text? By edits of its tree and of its bytes.
#pragma once

#include "config/parse.hpp"
#include "config/tree.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

using detail::Node;

/// A tree as YAML in flow style.
inline std::string to_text(const Node& node) {
  if (node.kind == Node::Kind::null) {
    return "null";
  }
  if (node.kind == Node::Kind::scalar) {
    const bool plain = !node.quoted && !node.text.empty() &&
                       node.text.find_first_of("${}[],:#&*!|>'\"%@`?\\\n\t ") == std::string::npos;
    std::string quoted;
    for (const char c : node.text) {
      quoted += c == '\'' ? "''" : std::string(1, c);
    }
    return plain ? node.text : "'" + quoted + "'";
  }
  const bool map = node.kind == Node::Kind::map;
  std::string text;
  for (const Node& child : node.children) {
    text += (text.empty() ? "" : ", ") + (map ? child.key + ": " : "") + to_text(child);
  }
  return (map ? "{" : "[") + text + (map ? "}" : "]");
}

inline void collect(Node& node, std::vector<Node*>& all) {
  for (Node& child : node.children) {
    all.push_back(&child);
    collect(child, all);
  }
}

inline Node scalar(const std::string& text, bool quoted = false) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = text;
  node.quoted = quoted;
  return node;
}

/// Replaces what a node holds; its key stays.
inline void assign(Node& node, Node value) {
  value.key = node.key;
  node = std::move(value);
}

/// Damages texts, the same way every time for one seed.
class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  /// `text` with one to three edits; some of the parsed tree, some of the bytes.
  std::string operator()(const std::string& text) {
    std::string mutated = text;
    for (std::size_t edit = pick(3) + 1; edit > 0; --edit) {
      mutated = pick(4) == 0 ? flip(mutated) : change(mutated);
    }
    return mutated;
  }

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }

  std::string flip(std::string text) {
    if (text.empty()) {
      return "x";
    }
    const std::size_t at = pick(text.size());
    text[at] = static_cast<char>(text[at] ^ (1U << pick(8)));
    return text;
  }

  std::string change(const std::string& text) {
    detail::Report report;
    auto root = detail::parse_yaml(text, {}, false, report);
    if (!root || root->kind != Node::Kind::map || root->children.empty()) {
      return flip(text);
    }
    std::vector<Node*> all;
    collect(*root, all);
    edit(*all[pick(all.size())], *all[pick(all.size())], *root);
    return to_text(*root) + "\n";
  }

  void edit(Node& node, Node& other, Node& root) {
    static const std::vector<std::string> kValues = {
        "0",   "-1",          "1",         "7",           "1e3",    "0.5", "1e999", "9999999999",
        "010", "auto",        "true",      "no",          "x",      "5s",  "2k",    "null",
        "",    "${run.seed}", "${vars.x}", "${env:HOME}", "a/../b", "gpt", "1_0"};
    switch (pick(7)) {
      case 0:
        node.key += pick(2) == 0 ? "s" : "_";
        return;
      case 1:
        return assign(node, copy(other));
      case 2:
        return erase(root, &node);
      case 3: {
        Node nested;
        nested.kind = pick(2) == 0 ? Node::Kind::map : Node::Kind::list;
        Node inner = copy(node);
        inner.key = "type";
        nested.children.push_back(std::move(inner));
        return assign(node, std::move(nested));
      }
      case 4:
        return assign(node, Node{});
      default:
        return assign(node, scalar(kValues[pick(kValues.size())], pick(5) == 0));
    }
  }

  static Node copy(const Node& node) { return node; }

  static void erase(Node& parent, const Node* node) {
    const auto it = std::find_if(parent.children.begin(),
                                 parent.children.end(),
                                 [&](const Node& child) { return &child == node; });
    if (it != parent.children.end()) {
      parent.children.erase(it);
      return;
    }
    for (Node& child : parent.children) {
      erase(child, node);
    }
  }

  std::mt19937 random_;
};

}  // namespace colossal::test
