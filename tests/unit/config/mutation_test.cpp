// Do a thousand kinds of damage to each shipped configuration end in diagnostics, or in a
// configuration that the schema and the rules accept? (config-and-cli 11, T4)
#include "config_sandbox.hpp"
#include "schema_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <sstream>

using namespace colossal;
using namespace colossal::test;

namespace {

namespace fs = std::filesystem;
using detail::Node;

#if defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 150;
#else
constexpr int kRounds = 1000;
#endif

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// A tree as YAML in flow style.
std::string to_text(const Node& node) {
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

void collect(Node& node, std::vector<Node*>& all) {
  for (Node& child : node.children) {
    all.push_back(&child);
    collect(child, all);
  }
}

Node scalar(const std::string& text, bool quoted = false) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = text;
  node.quoted = quoted;
  return node;
}

/// Replaces what a node holds; its key stays.
void assign(Node& node, Node value) {
  value.key = node.key;
  node = std::move(value);
}

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

/// What must hold of every configuration that load() lets pass.
void require_valid(const Loaded& loaded, SchemaCheck& schema, const std::string& text) {
  const Config& config = loaded.config;
  INFO(text);
  CHECK(schema.accepts(text));
  CHECK(config.train.global_batch_size ==
        config.parallel.data * config.train.micro_batch_size * config.train.gradient_accumulation);
  const std::string resolved = to_yaml(config);
  INFO(resolved);
  CHECK(schema.accepts(resolved));
  const ConfigSandbox box;
  const Loaded again = box.load(resolved, options({}, config.parallel.data));
  CHECK_FALSE(again.has_errors());
  CHECK(to_yaml(again.config) == resolved);
}

}  // namespace

TEST_CASE("a thousand mutations of every shipped configuration", "[config]") {
  SchemaCheck schema;
  const ConfigSandbox box;
  const fs::path configs = fs::path(COLOSSAL_SOURCE_DIR) / "configs";
  fs::copy(configs, box.path() / "configs", fs::copy_options::recursive);
  unsigned seed = 1;
  for (const auto& entry : fs::directory_iterator(configs)) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    INFO(entry.path().filename().string());
    const std::string original = read(entry.path());
    const fs::path target = box.path() / "configs" / "mutated.yaml";
    Mutator mutate(seed++);
    int valid = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string text = mutate(original);
      std::ofstream(target, std::ios::binary) << text;
      const Loaded loaded = load(target, options({}, 2));
      if (loaded.has_errors()) {
        REQUIRE(render(loaded.diagnostics).size() > 20);
        REQUIRE(loaded.diagnostics.size() <= 40);
      } else {
        ++valid;
        require_valid(loaded, schema, text);
      }
    }
    CHECK(valid > kRounds / 100);
    CHECK(valid < kRounds);
  }
  CHECK(seed > 5);
}
