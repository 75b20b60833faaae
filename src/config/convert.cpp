// How are values of each type checked and stored?
#include "config/convert.hpp"

#include "config/flatten.hpp"
#include "config/suggest.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal::detail {
namespace {

/// What every converter below needs to complain.
struct Target {
  const std::string& path;
  const Spec& spec;
  Report& report;

  void fail(const Node& node, const Problem& problem) const {
    Diagnostic& error =
        report.error(problem.id, path, node.origin, fmt::format("{}: {}", path, problem.message));
    error.value = flow_text(node);
    error.fix = problem.fix;
  }
};

bool expect_scalar(const Node& node, const Target& target, std::string_view what) {
  if (node.kind == Node::Kind::scalar) {
    return true;
  }
  target.fail(node,
              {"wrong-type",
               fmt::format("{}, expected {}", kind_text(node), what),
               fmt::format("write {}", what)});
  return false;
}

bool in_range(double value, const Range& range) {
  return (range.min_open ? value > range.min : value >= range.min) &&
         (range.max_open ? value < range.max : value <= range.max);
}

/// Says what makes a value text, and shows it.
void report_quotes(const Node& node, const Target& target, const Problem& problem) {
  const std::string text = flow_text(node);
  const std::string lines = text.substr(0, text.find_last_not_of('?') + 1);
  const std::string written = quoted_yaml(text);
  Diagnostic& error = target.report.error(
      problem.id,
      target.path,
      node.origin,
      node.block ? fmt::format("{}: '{}' is text, as a block after | or >", target.path, lines)
                 : fmt::format("{}: {} is text, because of its quotes", target.path, written));
  error.value = node.block ? lines : written;
  error.fix = node.block ? "write the value behind its key, on the same line" : problem.fix;
}

/// A number in quotes would pass here and fail in every editor that uses the schema.
bool refuse_quotes(const Node& node, const Target& target) {
  if (node.quoted) {
    report_quotes(node, target, Problem{"quoted-number", "", "remove the quotes"});
  }
  return node.quoted;
}

template <class T>
bool store(const Node& node, const Target& target, const Parsed<T>& parsed, T& value) {
  if (const auto* problem = std::get_if<Problem>(&parsed)) {
    target.fail(node, *problem);
    return false;
  }
  value = std::get<T>(parsed);
  return true;
}

template <class T>
void store_number(const Node& node, const Target& target, const Parsed<T>& parsed, T& value) {
  T number{};
  if (!store(node, target, parsed, number)) {
    return;
  }
  if (!in_range(static_cast<double>(number), target.spec.range)) {
    const std::string range = range_text(target.spec.range);
    target.fail(node,
                {"out-of-range",
                 fmt::format("{} is not {}", node.text, range),
                 fmt::format("choose a value {}", range)});
    return;
  }
  value = number;
}

bool is_whole(std::string_view text) {
  return std::holds_alternative<std::int64_t>(parse_int(text, false));
}

void read(const Node& node, const Target& target, std::int64_t& value) {
  if (target.spec.form == Form::bytes && !(node.quoted && is_whole(node.text))) {
    if (expect_scalar(node, target, "an amount such as 512MiB")) {
      store_number(node, target, parse_bytes(node.text), value);
    }
    return;
  }
  if (expect_scalar(node, target, "a number") && !refuse_quotes(node, target)) {
    store_number(node, target, parse_int(node.text, target.spec.form == Form::count), value);
  }
}

void read(const Node& node, const Target& target, double& value) {
  const bool duration = target.spec.form == Form::duration;
  if (!expect_scalar(node, target, duration ? "a duration such as 30s" : "a number")) {
    return;
  }
  if (duration) {
    store_number(node, target, parse_duration(node.text), value);
  } else if (!refuse_quotes(node, target)) {
    store_number(node, target, parse_real(node.text), value);
  }
}

void read(const Node& node, const Target& target, bool& value) {
  if (!expect_scalar(node, target, "true or false")) {
    return;
  }
  if (node.quoted) {
    report_quotes(node, target, Problem{"bad-bool", "", "write true or false without quotes"});
    return;
  }
  store(node, target, parse_bool(node.text), value);
}

/// The word nearest to `text`, as the end of a message: "; did you mean `cosine`?"
std::string did_you_mean(std::string_view text, std::span<const std::string_view> words) {
  const std::vector<std::string> candidates(words.begin(), words.end());
  const auto best = nearest(text, candidates);
  return best ? fmt::format("; did you mean `{}`?", *best) : "";
}

void refuse_word(const Node& node,
                 const Target& target,
                 std::span<const std::string_view> words,
                 const std::string& or_else = "") {
  target.fail(
      node,
      {"bad-enum",
       fmt::format(
           "'{}' is not one of the known words{}", flow_text(node), did_you_mean(node.text, words)),
       fmt::format("one of: {}{}", join(words), or_else)});
}

/// A relative path starts at the folder of the file that contains it; on the command line, at the
/// working folder. `text` is what the node holds, or what is shown of it.
std::string absolute_path(const Node& node, const std::string& text) {
  if (std::filesystem::path(node.text).is_absolute()) {
    return std::filesystem::path(text).lexically_normal().string();
  }
  const bool in_file = !node.origin.file.starts_with("--");
  const std::filesystem::path base =
      in_file ? folder_of(node.origin.file) : std::filesystem::path();
  return std::filesystem::absolute(base / text).lexically_normal().string();
}

void read(const Node& node, const Target& target, std::string& value) {
  if (!expect_scalar(node, target, "text")) {
    return;
  }
  const bool control = std::any_of(node.text.begin(), node.text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (node.text.empty() || control) {
    target.fail(node,
                {"bad-string",
                 control ? "a text with a control character" : "an empty text",
                 "write a text, or null for the default"});
    return;
  }
  const auto& words = target.spec.words;
  const bool known = std::find(words.begin(), words.end(), node.text) != words.end();
  if (!words.empty() && !known && target.spec.form != Form::path) {
    refuse_word(node, target, words);
    return;
  }
  value = target.spec.form == Form::path && !known ? absolute_path(node, node.text) : node.text;
}

/// The text of a word; `true` and `false` among the words are read as a boolean is.
std::string word_text(const Node& node, std::span<const std::string_view> words) {
  const bool switches = std::find(words.begin(), words.end(), "true") != words.end();
  const Parsed<bool> truth = parse_bool(node.text);
  const bool* const value = switches ? std::get_if<bool>(&truth) : nullptr;
  return value == nullptr ? node.text : node.quoted ? "" : *value ? "true" : "false";
}

void read(const Node& node, const Target& target, const EnumSlot& slot) {
  if (!expect_scalar(node, target, "a word")) {
    return;
  }
  const auto it = std::find(slot.words.begin(), slot.words.end(), word_text(node, slot.words));
  if (it == slot.words.end()) {
    refuse_word(node, target, slot.words);
    return;
  }
  *slot.value = static_cast<std::uint8_t>(it - slot.words.begin());
}

/// One key of a {path, weight} mapping.
void read_source_key(const Node& node, const Target& target, DataSource& value) {
  const std::string path = join_path(target.path, node.key);
  const Target here{path, target.spec, target.report};
  if (node.key == kSourcePath) {
    read(node, here, value.path);
  } else if (node.key == kSourceWeight) {
    double weight = 1;
    read(node, here, weight);
    if (weight <= 0) {
      here.fail(node,
                {"data-weights",
                 fmt::format("{} is not above 0", node.text),
                 "choose a weight above 0, or remove the item"});
    }
    value.weight = weight;
  } else {
    Diagnostic& error =
        target.report.error("unknown-key",
                            path,
                            node.key_origin,
                            fmt::format("`{}` is not a key of `{}`", node.key, target.path));
    error.value = flow_text(node);
    const std::vector<std::string> keys = {std::string(kSourcePath), std::string(kSourceWeight)};
    if (const auto best = nearest(node.key, keys)) {
      error.message += fmt::format("; did you mean `{}`?", *best);
    }
    error.fix = fmt::format("keys here: {}, {}", kSourcePath, kSourceWeight);
  }
}

/// A path, or {path, weight}.
void read(const Node& node, const Target& target, DataSource& value) {
  if (node.kind != Node::Kind::map) {
    read(node, target, value.path);
    return;
  }
  for (const Node& child : node.children) {
    const bool known = child.key == kSourcePath || child.key == kSourceWeight;
    if (child.kind != Node::Kind::null || !known) {
      read_source_key(child, target, value);
    }
  }
  const Node* const path = node.find(kSourcePath);
  if (path == nullptr || path->kind == Node::Kind::null) {
    target.report
        .error("required",
               join_path(target.path, kSourcePath),
               node.origin,
               fmt::format("{} names no file", target.path))
        .fix = "write {path: FILE, weight: 1}";
  }
}

template <class T>
void read(const Node& node, const Target& target, std::optional<T>& value) {
  T inner{};
  const std::size_t before = target.report.items().size();
  read(node, target, inner);
  if (target.report.items().size() == before) {
    value = inner;
  }
}

/// A word in place of a list of whole numbers, see Spec::words.
void read_list_word(const Node& node, const Target& target, std::vector<std::int64_t>& values) {
  const auto& words = target.spec.words;
  const auto found = std::find(words.begin(), words.end(), node.text);
  if (found == words.end()) {
    const std::string_view item = is_whole(node.text) ? std::string_view(node.text) : "1";
    refuse_word(node, target, words, fmt::format("; or a list, as [{}]", item));
    return;
  }
  values = {-1 - (found - words.begin())};
}

template <class T>
void read(const Node& node, const Target& target, std::vector<T>& values) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    if (node.kind == Node::Kind::scalar && !target.spec.words.empty()) {
      read_list_word(node, target, values);
      return;
    }
  }
  if (node.kind != Node::Kind::list) {
    target.fail(node,
                {"wrong-type",
                 fmt::format("{}, expected a list", kind_text(node)),
                 node.kind == Node::Kind::scalar ? fmt::format("write [{}]", flow_text(node))
                                                 : "write [..., ...]"});
    return;
  }
  const std::size_t wanted = target.spec.length;
  if (wanted != 0 && node.children.size() != wanted) {
    target.fail(node,
                {"list-length",
                 fmt::format("{} items, expected {}", node.children.size(), wanted),
                 fmt::format("give exactly {} items", wanted)});
    return;
  }
  if (target.spec.required && node.children.empty()) {
    target.fail(node, {"list-length", "an empty list", "give at least one item"});
    return;
  }
  values.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const std::string item_path = fmt::format("{}[{}]", target.path, i);
    T value{};
    read(node.children[i], {item_path, target.spec, target.report}, value);
    values.push_back(value);
  }
}

/// Whether a part of the value must not be written out.
bool holds_hidden(const Node& node) {
  return !node.shown.empty() ||
         std::any_of(node.children.begin(), node.children.end(), holds_hidden);
}

std::string shown_scalar(const Node& node, Form form) {
  const std::string& text = node.shown.empty() ? node.text : node.shown;
  const std::string full = form == Form::path ? absolute_path(node, text) : text;
  if (node.shown.empty()) {
    return looks_numeric(full) ? full : yaml_string(full);
  }
  return quoted_yaml(full);
}

/// A scalar, or a {path, weight} mapping, with `${...}` for what must not be written out.
std::string shown_text(const Node& node, Form form) {
  if (node.kind != Node::Kind::map) {
    return shown_scalar(node, form);
  }
  std::string text;
  for (const Node& child : node.children) {
    if (child.kind == Node::Kind::null) {
      continue;
    }
    const Form own = child.key == kSourcePath ? form : Form::plain;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", child.key, shown_scalar(child, own));
  }
  return "{" + text + "}";
}

/// Whether the value is a word that stands for "unset".
bool says_unset(const Node& node, const Spec& spec) {
  return node.kind == Node::Kind::scalar &&
         ((spec.auto_word && node.text == "auto") || (spec.all_word && node.text == "all"));
}

}  // namespace

std::string hidden_text(const Node& node, const Spec& spec) {
  if (!holds_hidden(node)) {
    return "";
  }
  if (node.kind != Node::Kind::list) {
    return shown_text(node, spec.form);
  }
  std::string text;
  for (const Node& child : node.children) {
    text += (text.empty() ? "" : ", ") + shown_text(child, spec.form);
  }
  return "[" + text + "]";
}

void convert(
    const Node& node, const std::string& path, const Slot& slot, const Spec& spec, Report& report) {
  if (says_unset(node, spec)) {
    if (auto* const* number = std::get_if<std::optional<std::int64_t>*>(&slot)) {
      (*number)->reset();  // whose default may be a number
    }
    return;
  }
  const Target target{path, spec, report};
  std::visit(
      [&](auto value) {
        if constexpr (std::is_same_v<decltype(value), EnumSlot>) {
          read(node, target, value);
        } else {
          read(node, target, *value);
        }
      },
      slot);
}

}  // namespace colossal::detail
