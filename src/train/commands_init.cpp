// How does an example become a file of the user's own? Whole, and with paths that hold where it
// lands.
#include "config/standalone.hpp"
#include "core/error.hpp"
#include "train/commands_config.hpp"
#include "train/examples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModeline = "# yaml-language-server: $schema=";

const Example& find_example(const std::string& name) {
  const auto all = examples();
  const auto it = std::find_if(
      all.begin(), all.end(), [&](const Example& example) { return example.name == name; });
  if (it == all.end()) {
    std::string names;
    for (const Example& example : all) {
      names += fmt::format("\n  {}", example.name);
    }
    fail(ErrorKind::usage, "unknown-example", "there is no example '{}'; there are{}", name, names);
  }
  return *it;
}

/// The folder that examples take for granted: of the sources that the program lies in, else the
/// working directory.
fs::path find_root() {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (!error && folder.has_relative_path()) {
    folder = folder.parent_path();
    if (fs::exists(folder / "configs" / "tiny-cpu.yaml", error)) {
      return folder;
    }
  }
  return fs::current_path();
}

/// Where a text comes from and goes to; absolute folders.
struct Move {
  fs::path root;
  fs::path from;
  fs::path to;

  /// `path`, which is relative to `from`, as a file in `to` names it: relative if both lie in the
  /// root, which may be moved as a whole.
  [[nodiscard]] std::string operator()(std::string_view path) const {
    const fs::path whole = (from / path).lexically_normal();
    const bool within = !to.lexically_relative(root).string().starts_with("..");
    return within ? whole.lexically_relative(to).string() : whole.string();
  }
};

/// `text` with every path that begins with "../" written anew.
std::string with_moved_paths(std::string_view text, const Move& move) {
  constexpr std::string_view kUp = "../";
  std::string moved;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(kUp), text.size());
    moved += text.substr(0, at);
    text.remove_prefix(at);
    const std::size_t end = std::min(text.find_first_of(" ,]}\"'\n"), text.size());
    const bool begins =
        moved.empty() || std::string_view(" [{=\"'").find(moved.back()) != std::string_view::npos;
    moved += begins && end > 0 ? move(text.substr(0, end)) : std::string(text.substr(0, end));
    text.remove_prefix(end);
  }
  return moved;
}

/// `text` without the line that names the schema for editors, if no file is there.
std::string without_lost_schema(const std::string& text, const fs::path& folder) {
  if (!text.starts_with(kModeline)) {
    return text;
  }
  const std::size_t end = text.find('\n');
  const fs::path schema = folder / text.substr(kModeline.size(), end - kModeline.size());
  return fs::exists(schema) ? text : text.substr(end + 1);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// The example as a file in `folder`; all others lie beside it in memory, for what it extends.
std::string text_for(const Example& example, const fs::path& folder) {
  const fs::path root = find_root();
  const fs::path configs = root / "configs";
  const auto path_of = [&](std::string_view name) {
    return (configs / (std::string(name) + ".yaml")).lexically_normal();
  };
  Texts texts;
  for (const Example& other : examples()) {
    const fs::path path = path_of(other.name);
    texts[path.string()] =
        with_moved_paths(other.text, {.root = root, .from = path.parent_path(), .to = folder});
  }
  return without_lost_schema(standalone(path_of(example.name).string(), texts), folder);
}

/// How to go on with a file that was written; empty for what is no run by itself.
std::string next_step(const std::string& text, const std::string& file) {
  if (load_text(text, file).has_errors()) {
    return "";
  }
  const fs::path script = find_root() / "scripts" / "train.sh";
  const bool prepares = text.find("\n# prepare: ") != std::string::npos;
  return prepares && fs::exists(script)
             ? fmt::format(
                   "; next: {} {}", script.lexically_relative(fs::current_path()).string(), file)
             : fmt::format("; next: colossal-train train {}", file);
}

}  // namespace

int run_config_init(const InitOptions& options) {
  const Example& example = find_example(options.name);
  if (!options.output) {
    fmt::print("{}", text_for(example, fs::current_path()));
    return 0;
  }
  const std::string& file = *options.output;
  check(!fs::exists(file),
        ErrorKind::usage,
        "file-exists",
        "{} exists already\n  fix   choose another name, or remove it",
        file);
  std::string text = text_for(example, fs::weakly_canonical(fs::absolute(file).parent_path()));
  replace_all(text, fmt::format("configs/{}.yaml", example.name), file);
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  stream.close();
  check(stream.good(),
        ErrorKind::config,
        "output-not-writable",
        "cannot write {}\n  fix   choose another folder, or mend its permissions",
        file);
  fmt::print(stderr, "wrote {}{}\n", file, next_step(text, file));
  return 0;
}

}  // namespace colossal
