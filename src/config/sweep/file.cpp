// How is a sweep file read? As a configuration is, by the same reader of keys.
#include "config/sweep/file.hpp"

#include "config/bind.hpp"
#include "config/rules/rules.hpp"
#include "config/uses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::array<MethodKey, 6> kMethodKeys = {{{"parameters", "grid random", false},
                                                   {"zip", "grid", false},
                                                   {"exclude", "grid", false},
                                                   {"trials", "list", true},
                                                   {"samples", "random", true},
                                                   {"seed", "random", false}}};

/// Moves a part out of the tree; a null node if it is not there.
Node take(Node& root, std::string_view key) {
  const Node* found = root.find(key);
  return found == nullptr ? Node() : *found;
}

/// Replaces `${name}`, the only use that a sweep's own keys have, in run.output_dir.
void insert_name(Node& root, const std::string& name, Report& report) {
  Node* run = root.find("run");
  Node* folder = run == nullptr ? nullptr : run->find("output_dir");
  if (folder == nullptr || folder->kind != Node::Kind::scalar) {
    return;
  }
  std::string problem;
  std::string text;
  for (const Piece& piece : split_uses(folder->text, problem)) {
    if (piece.use && piece.text != "name") {
      report
          .error("interp-unknown",
                 "run.output_dir",
                 folder->origin,
                 fmt::format("a sweep knows no ${{{}}}", piece.text))
          .fix = "${name} is the name of the sweep; other uses belong into the values of trials";
    }
    text += piece.use ? name : piece.text;
  }
  if (!problem.empty()) {
    report.error("interp-syntax", "run.output_dir", folder->origin, problem).fix = "write ${name}";
    return;
  }
  folder->text = text;
}

void check_name(const SweepFile& file, const Origins& origins, Report& report) {
  if (names_a_folder(file.name)) {
    return;
  }
  Diagnostic& error = report.error("bad-name",
                                   "name",
                                   origins.place_for("name"),
                                   fmt::format("'{}' cannot name a sweep", file.name));
  error.why = "the name becomes a folder; its default is the stem of the file";
  error.fix = "name: ... with 1 to 80 of A-Z a-z 0-9 . _ -";
}

void check_version(const SweepFile& file, const Origins& origins, Report& report) {
  if (file.version > 1) {
    report
        .error("version-newer",
               "version",
               origins.place_for("version"),
               fmt::format("version {} is newer than this binary, which knows 1", file.version))
        .fix = "write version: 1, or use a newer colossal-train";
  }
}

/// Keys of other methods have no effect; some methods cannot do without theirs.
void check_method(const Node& root, const SweepFile& file, const Origins& origins, Report& report) {
  const std::string_view method = kWords<SweepMethod>[static_cast<std::size_t>(file.method)];
  for (const MethodKey& part : kMethodKeys) {
    const Node* node = root.find(part.key);
    const bool given = node != nullptr && node->kind != Node::Kind::null;
    const bool applies = among_words(method, part.methods);
    if (given && !applies) {
      report
          .error("unused-section",
                 part.key,
                 node->key_origin,
                 fmt::format("{} belongs to method {}; with method {} it has no effect",
                             part.key,
                             either_word(part.methods),
                             method))
          .fix = fmt::format("remove it, or set method: {}", either_word(part.methods));
    } else if (!given && applies && part.required) {
      report
          .error("required",
                 part.key,
                 origins.place_for(part.key),
                 fmt::format("method {} needs {}", method, part.key))
          .fix = fmt::format("add `{}: ...`", part.key);
    }
  }
}

}  // namespace

std::span<const MethodKey> method_keys() {
  return kMethodKeys;
}

// clang-format off: one key per line reads as a table
void describe(Visitor& v, SweepFile& c) {
  v.field("version", c.version, {.help = "version of the schema of sweeps; must be 1", .range = at_least(1)});
  v.field("name", c.name, {.help = "name of the sweep: up to 80 of A-Z a-z 0-9 . _ -", .derived = "stem of the file"});
  v.field("base", c.base, {.help = "the configuration whose keys the trials set", .form = Form::path, .required = true});
  v.field("method", c.method, {.help = "grid: every combination; list: the trials that are written; random: drawn from distributions"});
  v.tree("parameters", {.help = "grid: values of each key; random: the distribution of each key"});
  v.tree("zip", {.help = "keys that move together: the first values of a block, the second ones, ..."});
  v.tree("exclude", {.help = "combinations that are left out"});
  v.tree("trials", {.help = "keys of each trial"});
  v.field("samples", c.samples, {.help = "number of trials of method random", .form = Form::count, .range = between(1, 1e6)});
  v.field("seed", c.seed, {.help = "of the draws of method random", .range = at_least(0)});
  v.section("run", c.run, {.help = "how trials are run"});
}

void describe(Visitor& v, SweepRun& c) {
  v.field("nproc", c.nproc, {.help = "processes of each trial, as --nproc", .range = between(1, 1024), .auto_word = true});
  v.field("parallel", c.parallel, {.help = "so many trials at a time, by scripts/sweep.sh", .range = between(1, 1e4)});
  v.field("on_failure", c.on_failure, {.help = "continue: scripts/sweep.sh goes on after a trial has failed; stop: it starts no other"});
  v.field("retries", c.retries, {.help = "how often scripts/sweep.sh starts a trial again after exit code 8, 9 or a signal", .range = between(0, 1000)});
  v.field("output_dir", c.output_dir, {.help = "folder of all trials; ${name} is the name of the sweep", .form = Form::path, .derived = "sweeps/NAME in the working directory"});
}
// clang-format on

SweepFile read_sweep(const std::filesystem::path& yaml, Composer& composer, Report& report) {
  SweepFile file;
  std::optional<Node> root = composer.load(yaml);
  if (!root || report.has_errors()) {
    return file;
  }
  const Node* name = root->find("name");
  insert_name(
      *root,
      name != nullptr && name->kind == Node::Kind::scalar ? name->text : yaml.stem().string(),
      report);
  Origins origins;
  bind_keys(
      {.root = *root, .what = "a sweep", .paths = {}},
      [&](Visitor& v) { describe(v, file); },
      origins,
      report);
  file.base_origin = origins.place_for("base");
  file.place = origins.place_for("");
  file.name = file.name.empty() ? yaml.stem().string() : file.name;
  file.parameters = take(*root, "parameters");
  file.zip = take(*root, "zip");
  file.exclude = take(*root, "exclude");
  file.trials = take(*root, "trials");
  check_name(file, origins, report);
  check_version(file, origins, report);
  check_method(*root, file, origins, report);
  return file;
}

}  // namespace colossal::detail
