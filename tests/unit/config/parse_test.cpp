// Does the tree hold what was written, where it was written?
#include "config/parse.hpp"

#include "config/compose.hpp"
#include "support/catch.hpp"

#include <fmt/format.h>

#include <ctime>

namespace colossal::test {

using detail::Node;

namespace {

/// "key@line:col=value@line:col" of every node, to compare whole trees at once.
void dump(const Node& node, std::string& out) {
  if (!node.key.empty()) {
    out += fmt::format("{}@{}:{}=", node.key, node.key_origin.line, node.key_origin.col);
  }
  const std::string where = fmt::format("@{}:{}", node.origin.line, node.origin.col);
  switch (node.kind) {
    case Node::Kind::null:
      out += "null" + where;
      return;
    case Node::Kind::scalar:
      out += (node.quoted ? "'" + node.text + "'" : node.text) + where;
      return;
    case Node::Kind::list:
    case Node::Kind::map:
      break;
  }
  out += node.kind == Node::Kind::map ? "{" : "[";
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    out += i == 0 ? "" : " ";
    dump(node.children[i], out);
  }
  out += (node.kind == Node::Kind::map ? "}" : "]") + where;
}

std::string tree(const std::string& text) {
  detail::Report report;
  Origin base;
  base.file = "t.yaml";
  const auto root = detail::parse_yaml(text, base, false, report);
  if (!report.items().empty() || !root) {
    std::string ids;
    for (const Diagnostic& item : report.items()) {
      ids += fmt::format("{} {}:{};", item.id, item.origin.line, item.origin.col);
    }
    return ids;
  }
  std::string out;
  dump(*root, out);
  return out;
}

}  // namespace

TEST_CASE("nothing after a key is located at the key", "[config]") {
  CHECK(tree("a:\n\n\nb: 1\nc:\n  d:\n") ==
        "{a@1:1=null@1:1 b@4:1=1@4:4 c@5:1={d@6:3=null@6:3}@6:3}@1:1");
  CHECK(tree("{a: ~}") == "{a@1:2=null@1:5}@1:1");
}

TEST_CASE("places are 1-based and those of keys and values", "[config]") {
  CHECK(tree("a: 1\nbc:\n  d: x y\n") == "{a@1:1=1@1:4 bc@2:1={d@3:3=x y@3:6}@3:3}@1:1");
  CHECK(tree("l:\n  - 1\n  - {k: v}\n") == "{l@1:1=[1@2:5 {k@3:6=v@3:9}@3:5]@2:3}@1:1");
  CHECK(tree("{\"a\": [1, \"2\"]}") == "{a@1:2=[1@1:8 '2'@1:11]@1:7}@1:1");
}

TEST_CASE("all spellings of null are null", "[config]") {
  for (const char* null : {"", "~", "null", "Null", "NULL"}) {
    detail::Report report;
    const auto root = detail::parse_yaml(fmt::format("a: {}\n", null), {}, false, report);
    REQUIRE(root.has_value());
    CHECK(root->children.at(0).kind == Node::Kind::null);
  }
  CHECK(tree("a: 'null'\n") == "{a@1:1='null'@1:4}@1:1");
  CHECK(tree("") == "null@0:0");
  CHECK(tree("# nothing\n") == "null@0:0");
}

TEST_CASE("scalars keep their text", "[config]") {
  CHECK(tree("a: 010\nb: no\nc: 1e3\n") == "{a@1:1=010@1:4 b@2:1=no@2:4 c@3:1=1e3@3:4}@1:1");
  CHECK(tree("a: |\n  x\n  y\n").starts_with("{a@1:1='x\ny\n'@"));
}

TEST_CASE("an alias is a copy of its anchor's value", "[config]") {
  CHECK(tree("a: &x {b: 1}\nc: *x\n") == "{a@1:1={b@1:8=1@1:11}@1:4 c@2:1={b@1:8=1@1:11}@1:4}@1:1");
}

TEST_CASE("all structural defects are found in one pass", "[config]") {
  CHECK(tree("a: 1\na: 2\nb: !x 1\n<<: {c: 1}\n[d]: 2\n") ==
        "duplicate-key 2:1;tag 3:4;merge-key 4:1;bad-key 5:1;");
  CHECK(tree("a: {b: 1, c: 2, b: 3}\n") == "duplicate-key 1:17;");
  CHECK(tree("a: 1\n---\na: 2\n...\n---\na: 3\n") == "multi-document 2:1;");
  CHECK(tree("--- a: 1\n").starts_with("yaml-syntax"));
  CHECK(tree("---\na: 1\n...\n") == "{a@2:1=1@2:4}@2:1");
}

TEST_CASE("a duplicate key cites both lines", "[config]") {
  detail::Report report;
  (void)detail::parse_yaml("a: 1\nb: 2\na: 3\n", {}, false, report);
  REQUIRE(report.items().size() == 1);
  const Diagnostic& error = report.items()[0];
  CHECK(error.origin.line == 3);
  REQUIRE(error.related.size() == 1);
  CHECK(error.related[0].origin.line == 1);
  CHECK(error.related[0].value == "1");
  CHECK(error.fix == "remove one of lines 1 and 3");
}

TEST_CASE("searching for duplicate keys took the square of their number", "[config]") {
  constexpr int kKeys = 40'000;
  const auto seconds = [&](int from, bool flat) {
    std::string text;
    for (int i = from; i < from + kKeys; ++i) {
      text += flat ? fmt::format("k{}: 1\n", i) : fmt::format("- {{k{}: 1}}\n", i);
    }
    detail::Report report;
    const std::clock_t start = std::clock();
    const auto root = detail::parse_yaml(text, {}, false, report);
    const std::clock_t end = std::clock();
    REQUIRE(root.has_value());
    CHECK(root->children.size() == kKeys);
    return static_cast<double>(end - start) / CLOCKS_PER_SEC;
  };
  // As many mappings of one key have more to build and nothing to search.
  CHECK(seconds(0, true) < 2 * seconds(0, false));
}

TEST_CASE("merging replaces leaves and keeps the rest", "[config]") {
  const auto merged = [](const std::string& base, const std::string& over) {
    detail::Report report;
    auto low = detail::parse_yaml(base, {}, false, report);
    auto high = detail::parse_yaml(over, {}, false, report);
    REQUIRE((low && high));
    detail::merge(*low, std::move(*high));
    return detail::flow_text(*low);
  };
  CHECK(merged("{a: 1, b: {c: 2, d: 3}}", "{b: {d: 4, e: 5}, f: 6}") ==
        "{a: 1, b: {c: 2, d: 4, e: 5}, f: 6}");
  CHECK(merged("{a: [1, 2]}", "{a: [3]}") == "{a: [3]}");
  CHECK(merged("{a: {b: 1}}", "{a: null}") == "{a: null}");
  CHECK(merged("{a: null}", "{a: {b: 1}}") == "{a: {b: 1}}");
  CHECK(merged("{a: 1}", "{a: {b: 1}}") == "{a: {b: 1}}");
  CHECK(merged("{a: 1}", "{}") == "{a: 1}");
}

TEST_CASE("escapes of two bytes are whole characters", "[config]") {
  detail::Report report;
  const auto root =
      detail::parse_yaml("a: \"x\\_y\\Nz\\xe9\xc3\xa9\"\nb: \"\\_\"\n", {}, false, report);
  REQUIRE(root.has_value());
  CHECK(root->children.at(0).text == "x\xc2\xa0y\xc2\x85z\xc3\xa9\xc3\xa9");
  CHECK(root->children.at(1).text == "\xc2\xa0");
}

TEST_CASE("a block of lines is known from a text in quotes", "[config]") {
  detail::Report report;
  const auto root = detail::parse_yaml(
      "a: |\n  1\nb: >-\n  2\nc: \"3\"\nd: '4'\ne: 5\nf: \"|\"\ng: &x |\n  6\n", {}, false, report);
  REQUIRE(root.has_value());
  std::string forms;
  for (const Node& node : root->children) {
    forms += node.block ? "b" : node.quoted ? "q" : "p";
  }
  CHECK(forms == "bbqqpqb");
}

TEST_CASE("long values are shortened for messages, never inside a character", "[config]") {
  detail::Report report;
  std::string text = "a: \"";
  for (int i = 0; i < 40; ++i) {
    text += "\xc3\xa9";
  }
  const auto root = detail::parse_yaml(text + "\"", {}, false, report);
  REQUIRE(root.has_value());
  const std::string shown = detail::flow_text(root->children.at(0));
  REQUIRE(shown.size() == 59);  // 57 bytes would end inside the 29th character
  CHECK(shown.ends_with("\xc3\xa9..."));
}

}  // namespace colossal::test
