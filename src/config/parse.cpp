// How are yaml-cpp's events turned into our tree, and its errors into diagnostics?
#include "config/parse.hpp"

#include "config/scan.hpp"
#include "config/slips.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>
#include <utility>

namespace colossal::detail {
namespace {

/// Aliases can multiply a small file into a huge tree; no configuration needs this many nodes.
constexpr std::size_t kMaxNodes = 100'000;
/// yaml-cpp gives up at some depth of its own, with words about files.
constexpr std::size_t kMaxNesting = 100;

std::size_t count_nodes(const Node& node) {
  std::size_t total = 1;
  for (const Node& child : node.children) {
    total += count_nodes(child);
  }
  return total;
}

/// yaml-cpp 0.7.0 gives one byte for the escapes \_ and \N, U+00A0 and U+0085, which have two.
std::string with_whole_escapes(const std::string& value) {
  std::string whole;
  for (std::size_t i = 0; i < value.size();) {
    const std::size_t length = utf8_length(value, i);
    if (length == 0) {
      whole += '\xC2';
    }
    whole += value.substr(i, std::max<std::size_t>(length, 1));
    i += std::max<std::size_t>(length, 1);
  }
  return whole;
}

/// Whether the value at a place, perhaps behind its anchor, is a block of lines.
bool begins_block(std::string_view text, const YAML::Mark& mark) {
  auto at = static_cast<std::size_t>(std::max(mark.pos, 0));
  while (at < text.size() && (text[at] == '&' || text[at] == '!')) {
    at = std::min(
        text.find_first_not_of(" \n", std::min(text.find_first_of(" \n", at), text.size())),
        text.size());
  }
  return at < text.size() && (text[at] == '|' || text[at] == '>');
}

/// Builds the tree of the first document; yaml-cpp's own nodes would hide duplicate keys and drop
/// marks.
class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, const Origin& base, Report& report)
      : text_(text), base_(base), report_(report) {}

  [[nodiscard]] Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    ++documents_;
    if (documents_ == 2) {
      Diagnostic& error =
          report_.error("multi-document", "", at(mark), "a second YAML document starts here");
      error.why = "one file describes one run";
      error.fix = "keep one document; share parts with `extends`";
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Node::Kind::null, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) {
      report_.error("yaml-syntax", "", at(mark), "an alias refers to the value it is part of").fix =
          "copy the value";
      add(make(Node::Kind::null, mark), 0);
      return;
    }
    nodes_ += count_nodes(it->second);
    if (nodes_ > kMaxNodes) {
      report_
          .error("yaml-syntax",
                 "",
                 at(mark),
                 fmt::format("aliases expand to over {} values", kMaxNodes))
          .fix = "remove some aliases";
      throw YAML::ParserException(mark, "");
    }
    add(it->second, 0);
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    Node node = make(Node::Kind::scalar, mark);
    node.quoted = tag == "!";
    node.block = node.quoted && begins_block(text_, mark);
    node.text = node.quoted ? with_whole_escapes(value) : value;
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    Node key;
    std::unordered_map<std::string, std::size_t> places;  ///< of the keys among node's children
  };

  [[nodiscard]] Origin at(const YAML::Mark& mark) const {
    Origin origin = base_;
    if (base_.line == 0) {
      origin.line = mark.line + 1;
      origin.col = mark.column + 1;
    }
    return origin;
  }

  [[nodiscard]] Node make(Node::Kind kind, const YAML::Mark& mark) const {
    Node node;
    node.kind = kind;
    node.origin = at(mark);
    return node;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      report_.error("tag", "", at(mark), fmt::format("the tag {} is not supported", tag)).fix =
          "remove it; the key decides the type";
    }
  }

  void open(Node::Kind kind,
            const YAML::Mark& mark,
            const std::string& tag,
            YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (frames_.size() == kMaxNesting) {
      report_
          .error("yaml-syntax",
                 "",
                 at(mark),
                 fmt::format("lists and mappings are nested more than {} deep", kMaxNesting))
          .fix = "close the brackets before, or check the indentation";
      throw YAML::ParserException(mark, "");
    }
    frames_.push_back({make(kind, mark), anchor, false, {}, {}});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    ++nodes_;
    if (anchor != 0) {
      anchors_[anchor] = node;
    }
    if (frames_.empty()) {
      if (documents_ == 1) {
        root_ = std::move(node);
      }
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::list) {
      frame.node.children.push_back(std::move(node));
    } else if (!frame.has_key) {
      frame.key = std::move(node);
      frame.has_key = true;
    } else {
      frame.has_key = false;
      add_entry(frame, std::move(node));
    }
  }

  void add_entry(Frame& frame, Node value) {
    const Node& key = frame.key;
    if (key.kind != Node::Kind::scalar) {
      report_.error("bad-key", "", key.origin, "a key is " + kind_text(key) + ", not a word").fix =
          "write `key: value`";
      return;
    }
    if (key.text == "<<") {
      report_.error("merge-key", "", key.origin, "the merge key << is not supported").fix =
          "use `extends: FILE` in this mapping";
      return;
    }
    const bool odd = value.kind == Node::Kind::null || key.text.find(':') != std::string::npos;
    if (odd && report_slip(key, "", report_)) {
      return;
    }
    const auto [place, fresh] = frame.places.emplace(key.text, frame.node.children.size());
    if (!fresh) {
      const Node& first = frame.node.children[place->second];
      Diagnostic& error = report_.error("duplicate-key",
                                        key.text,
                                        key.origin,
                                        fmt::format("the key `{}` is given twice", key.text));
      error.value = flow_text(value);
      error.related.push_back({key.text, flow_text(first), first.key_origin});
      const Origin& other = first.key_origin;
      error.fix = other.line != key.origin.line
                      ? fmt::format("remove one of lines {} and {}", other.line, key.origin.line)
                  : other.col != key.origin.col
                      ? fmt::format("remove one of columns {} and {}", other.col, key.origin.col)
                      : "remove one of the two";  // of an override, which has no columns
      return;
    }
    // Nothing after a key is noticed where the next thing stands, lines later.
    if (value.kind == Node::Kind::null && value.origin.line != key.origin.line) {
      value.origin = key.origin;
    }
    value.key = key.text;
    value.key_origin = key.origin;
    frame.node.children.push_back(std::move(value));
  }

  std::string_view text_;
  Origin base_;
  Report& report_;
  Node root_;
  int documents_ = 0;
  std::size_t nodes_ = 0;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchors_;
};

/// What to do about an error of the parser at this place of this line.
std::string syntax_fix(const YAML::Exception& problem, std::string_view line) {
  const auto column = static_cast<std::size_t>(std::max(problem.mark.column, 0));
  if (problem.msg == "end of map flow not found" && column < line.size() && line[column] == ':') {
    // "{a: 1 b: 2}": what looks like a value ends with the next key.
    const std::size_t key = line.find_last_of(" ,{", column) + 1;
    if (key >= 2 && line[key - 1] == ' ' && line.substr(0, key - 1).find_last_of(",{:") < key - 2) {
      return fmt::format("put a comma before `{}`", line.substr(key, column - key));
    }
  }
  return problem.msg == "illegal map value"
             ? "put the value in quotes if it contains ': '"
             : "check the indentation and punctuation here and on the line before";
}

/// Whether the parser gets beyond a place in `text`.
bool gets_beyond(const YAML::Mark& place, const std::string& text) {
  Report ignored;
  Builder builder(text, {}, ignored);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& problem) {
    return std::pair(problem.mark.line, problem.mark.column) > std::pair(place.line, place.column);
  }
  return true;
}

void report_syntax(const YAML::Exception& problem,
                   std::string_view text,
                   const Origin& base,
                   Report& report) {
  const auto helps = [&](const std::string& mended) { return gets_beyond(problem.mark, mended); };
  if (report_slip_near(text, problem.mark.line + 1, base, helps, report)) {
    return;
  }
  Origin origin = base;
  if (base.line == 0 && problem.mark.line >= 0) {
    origin.line = problem.mark.line + 1;
    origin.col = problem.mark.column + 1;
  }
  Diagnostic& error = report.error("yaml-syntax", "", origin, "YAML: " + problem.msg);
  error.fix = syntax_fix(problem, line_of(text, problem.mark.line + 1));
}

}  // namespace

std::optional<Node> parse_yaml(std::string_view text,
                               const Origin& base,
                               bool json,
                               Report& report) {
  const std::size_t before = report.items().size();
  const std::string clean = scan_yaml(text, base, json, report);
  if (report.items().size() != before) {
    return std::nullopt;
  }
  Builder builder(clean, base, report);
  try {
    std::istringstream stream(clean);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& problem) {
    if (!problem.msg.empty()) {
      report_syntax(problem, clean, base, report);
    }
    return std::nullopt;
  }
  return builder.take();
}

}  // namespace colossal::detail
