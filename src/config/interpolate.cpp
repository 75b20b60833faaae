// How are uses found, looked up and put together?
#include "config/interpolate.hpp"

#include "config/flatten.hpp"
#include "config/key_path.hpp"
#include "config/suggest.hpp"
#include "config/uses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

namespace colossal::detail {
namespace {

/// A value to insert. `shown` is what may be written out: it differs for secrets.
struct Value {
  std::string text;
  std::string shown;
  bool secret = false;
  bool null = false;
};

class Interpolator {
 public:
  Interpolator(Node& root, const InterpolateInput& input, Report& report)
      : root_(root), input_(input), report_(report), fields_(all_fields()) {}

  Interpolated run() {
    check_vars();
    for (Node& child : root_.children) {
      if (child.key != "vars") {
        walk(child, child.key);
      }
    }
    report_unused();
    std::erase_if(root_.children, [](const Node& child) { return child.key == "vars"; });
    return std::move(found_);
  }

 private:
  void check_vars() {
    const Node* vars = root_.find("vars");
    if (vars == nullptr || vars->kind == Node::Kind::null) {
      return;
    }
    if (vars->kind != Node::Kind::map) {
      report_
          .error("wrong-type",
                 "vars",
                 vars->origin,
                 fmt::format("vars is {}, not a mapping", kind_text(*vars)))
          .fix = "write `vars: {name: value}`";
      return;
    }
    for (const Node& variable : vars->children) {
      const std::string path = join_path("vars", variable.key);
      if (!is_variable_name(variable.key)) {
        report_
            .error("bad-key",
                   path,
                   variable.key_origin,
                   fmt::format("`{}` cannot be the name of a variable", variable.key))
            .fix = "use letters, digits and _";
      } else if (variable.kind == Node::Kind::list || variable.kind == Node::Kind::map) {
        report_
            .error("wrong-type",
                   path,
                   variable.origin,
                   fmt::format("{} is {}, not a single value", path, kind_text(variable)))
            .fix = "share lists and mappings by `extends` or an anchor";
      }
    }
  }

  void report_unused() {
    const Node* vars = root_.find("vars");
    if (vars == nullptr || vars->kind != Node::Kind::map) {
      return;
    }
    for (const Node& variable : vars->children) {
      const std::string path = join_path("vars", variable.key);
      if (used_.count(path) == 0) {
        report_
            .warning("unused-var",
                     path,
                     variable.key_origin,
                     fmt::format("the variable `{}` is used nowhere", variable.key))
            .fix = fmt::format("remove it, or write ${{{}}} where it is meant", path);
      }
    }
  }

  void walk(Node& node, const std::string& path) {
    refuse_interpolation(node.key, node.key_origin, "a key", report_);
    if (node.kind == Node::Kind::scalar) {
      resolve(node, path);
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool map = node.kind == Node::Kind::map;
      walk(node.children[i],
           map ? join_path(path, node.children[i].key) : fmt::format("{}[{}]", path, i));
    }
  }

  /// Replaces the uses in one scalar; those in values it refers to first. Reports once.
  void resolve(Node& node, const std::string& path) {
    if (!done_.insert(path).second || node.text.find(kUseOpen) == std::string::npos) {
      return;
    }
    std::string problem;
    const std::vector<Piece> pieces = split_uses(node.text, problem);
    if (!problem.empty()) {
      report_syntax(node, path, problem);
      return;
    }
    stack_.push_back(path);
    if (!join(node, path, pieces)) {
      failed_.insert(path);
    }
    stack_.pop_back();
  }

  /// Puts the pieces together; false after reporting.
  bool join(Node& node, const std::string& path, const std::vector<Piece>& pieces) {
    Value whole;
    bool uses = false;
    for (const Piece& piece : pieces) {
      const auto value = piece.use ? look_up(piece.text, node, path)
                                   : std::optional(Value{piece.text, escape_braces(piece.text)});
      if (!value) {
        return false;
      }
      uses = uses || piece.use;
      whole.text += value->text;
      whole.shown += value->shown;
      whole.secret = whole.secret || value->secret;
      whole.null = value->null;
    }
    node.expression = node.text;
    node.shown = whole.secret ? whole.shown : "";
    node.text = whole.text;
    node.quoted = node.quoted && !uses;  // the quotes only protected the braces
    if (pieces.size() == 1 && whole.null) {
      node.kind = Node::Kind::null;
    }
    return true;
  }

  /// The value of one use; nothing after reporting.
  std::optional<Value> look_up(const std::string& use, const Node& at, const std::string& path) {
    if (use.starts_with("env:")) {
      return environment(use, at, path);
    }
    if (use == "run.time") {
      found_.uses_run_time = true;
      relate(path, {use, input_.run_time, named("start of the program")});
      return Value{input_.run_time, input_.run_time};
    }
    const std::vector<Step> steps = split_path(use);
    if (steps.empty()) {
      report_syntax(at, path, fmt::format("'${{{}}}' names no key", use));
      return std::nullopt;
    }
    const std::string key = path_text(steps);
    used_.insert(key);
    Node* target = &root_;
    for (const Step& step : steps) {
      target = target == nullptr ? nullptr : child_at(*target, step);
    }
    if (target == nullptr || target->kind == Node::Kind::null) {
      return standard(key, at, path);
    }
    return other_key(key, *target, at, path);
  }

  std::optional<Value> other_key(const std::string& use,
                                 Node& target,
                                 const Node& at,
                                 const std::string& path) {
    if (target.kind != Node::Kind::scalar) {
      Diagnostic& error =
          report_.error("interp-unknown",
                        path,
                        at.origin,
                        fmt::format("'${{{}}}' is {}, not a single value", use, kind_text(target)));
      error.value = flow_text(at);
      error.related.push_back({use, flow_text(target), target.origin});
      error.fix = "name a key with a single value; share lists and mappings by an anchor";
      return std::nullopt;
    }
    if (std::find(stack_.begin(), stack_.end(), use) != stack_.end()) {
      report_cycle(use, at, path);
      return std::nullopt;
    }
    resolve(target, use);
    if (failed_.count(use) != 0) {
      return std::nullopt;  // reported there
    }
    const std::string shown = target.shown.empty() ? escape_braces(target.text) : target.shown;
    relate(path, {use, target.shown.empty() ? flow_text(target) : target.shown, target.origin});
    return Value{target.text, shown, !target.shown.empty(), false};
  }

  /// A key that is not written: its default.
  std::optional<Value> standard(const std::string& use, const Node& at, const std::string& path) {
    if (use == "run.name") {
      relate(path, {use, input_.stem, named("derived(file name)")});
      return Value{input_.stem, escape_braces(input_.stem)};
    }
    const auto field = std::find_if(
        fields_.begin(), fields_.end(), [&](const FlatField& f) { return f.path == use; });
    if (field != fields_.end() && field->has_default) {
      relate(path, {use, field->text, named("<default>")});
      return Value{field->text, field->text};
    }
    Diagnostic& error = report_.error(
        "interp-unknown", path, at.origin, fmt::format("'${{{}}}' refers to nothing", use));
    error.value = flow_text(at);
    if (field != fields_.end()) {
      error.why = fmt::format("{} is not written, and it has no default that is known here", use);
      error.fix = fmt::format("write {}, or a variable under `vars`", use);
    } else if (const auto best = nearest(use, known_names())) {
      error.message += fmt::format("; did you mean '${{{}}}'?", *best);
      error.fix = fmt::format("use ${{{}}}", *best);
    } else {
      error.fix = "name a key of this configuration, vars.NAME, env:NAME or run.time";
    }
    return std::nullopt;
  }

  [[nodiscard]] std::vector<std::string> known_names() const {
    std::vector<std::string> names = {"run.time"};
    for (const FlatField& field : fields_) {
      names.push_back(field.path);
    }
    if (const Node* vars = root_.find("vars")) {
      for (const Node& variable : vars->children) {
        names.push_back(join_path("vars", variable.key));
      }
    }
    return names;
  }

  std::optional<Value> environment(const std::string& use,
                                   const Node& at,
                                   const std::string& path) {
    const std::string_view body = std::string_view(use).substr(4);
    const std::size_t sign = body.find(":-");
    const std::string name(body.substr(0, sign));
    if (!is_variable_name(name)) {
      report_syntax(at, path, fmt::format("'{}' is not the name of an environment variable", name));
      return std::nullopt;
    }
    const char* set = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): never set here
    const bool has_default = sign != std::string_view::npos;
    if (set == nullptr && !has_default) {
      Diagnostic& error =
          report_.error("interp-env",
                        path,
                        at.origin,
                        fmt::format("the environment variable {} is not set", name));
      error.value = flow_text(at);
      error.fix = fmt::format("export {}=..., or give a default: ${{env:{}:-VALUE}}", name, name);
      return std::nullopt;
    }
    const bool standard = has_default && (set == nullptr || *set == '\0');
    Value value;
    value.text = standard ? std::string(body.substr(sign + 2)) : set;
    value.null = value.text == "null" || value.text == "~";
    value.secret = is_secret(name);
    value.shown = value.secret ? fmt::format("${{{}}}", use) : escape_braces(value.text);
    if (value.secret && !standard) {
      found_.secrets[value.text] = value.shown;
    }
    relate(path,
           {"env:" + name, value.shown, named(standard ? "default in place" : "environment")});
    return value;
  }

  static Origin named(const char* file) {
    Origin origin;
    origin.file = file;
    return origin;
  }

  void relate(const std::string& path, Related source) {
    found_.sources[path].push_back(std::move(source));
  }

  void report_syntax(const Node& at, const std::string& path, const std::string& problem) {
    failed_.insert(path);
    Diagnostic& error = report_.error("interp-syntax", path, at.origin, problem);
    error.value = flow_text(at);
    error.fix =
        "write ${path.to.key}, ${vars.NAME}, ${env:NAME}, ${env:NAME:-DEFAULT} or ${run.time}; "
        "$${ is a plain ${";
  }

  void report_cycle(const std::string& use, const Node& at, const std::string& path) {
    std::string chain;
    for (auto it = std::find(stack_.begin(), stack_.end(), use); it != stack_.end(); ++it) {
      chain += *it + " -> ";
      failed_.insert(*it);
    }
    Diagnostic& error =
        report_.error("interp-cycle",
                      path,
                      at.origin,
                      fmt::format("'${{{}}}' runs in a circle: {}{}", use, chain, use));
    error.value = flow_text(at);
    error.fix = "write one of these values out";
  }

  Node& root_;
  const InterpolateInput& input_;
  Report& report_;
  std::vector<FlatField> fields_;
  Interpolated found_;
  std::set<std::string> done_;    ///< paths whose scalar was looked at
  std::set<std::string> failed_;  ///< of those: reported, no value
  std::set<std::string> used_;    ///< paths that a use names
  std::vector<std::string> stack_;
};

}  // namespace

Interpolated interpolate(Node& root, const InterpolateInput& input, Report& report) {
  return Interpolator(root, input, report).run();
}

}  // namespace colossal::detail
