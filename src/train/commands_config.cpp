// How do validate, config show, explain and diff work?
#include "train/commands_config.hpp"

#include "config/explain.hpp"
#include "core/error.hpp"
#include "train/late_errors.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace colossal {
namespace {

namespace fs = std::filesystem;

int validate_one(const std::string& path, const ValidateOptions& options, const DataCheck& data) {
  const Loaded loaded = load(path, load_options(options.more, options.world_size));
  const bool json = options.more.json_diagnostics;
  fmt::print("{}", render(loaded.diagnostics, diagnostic_form(json, STDOUT_FILENO)));
  if (loaded.has_errors()) {
    return kConfigExit;
  }
  const int code = options.data ? data(loaded, json) : 0;
  if (code == 0 && !json) {
    fmt::print("{}: ok\n", path);
  }
  return code;
}

/// validate_one() whose errors are this file's result: the next file has its turn.
int validate_and_report(const std::string& path,
                        const ValidateOptions& options,
                        const DataCheck& data) {
  try {
    return validate_one(path, options, data);
  } catch (const Error& error) {
    std::fflush(stdout);
    write_error(error, options.more.json_diagnostics);
    return error.exit_code();
  }
}

/// The configuration of a file or a run directory; empty after its errors were written to stderr.
std::optional<Loaded> load_any(const std::string& name, const LoadOptions& options) {
  fs::path path = name;
  if (fs::is_directory(path)) {
    path /= "config.resolved.yaml";
    check(fs::exists(path),
          ErrorKind::config,
          "file-not-found",
          "{} is a folder without config.resolved.yaml\n  fix   name a YAML file, or the folder of "
          "a run",
          name);
  }
  Loaded loaded = load(path, options);
  if (loaded.has_errors()) {
    fmt::print(stderr, "{}", render(loaded.diagnostics, diagnostic_form(false, STDERR_FILENO)));
    return std::nullopt;
  }
  return loaded;
}

/// Whether nobody wrote the value: it follows from keys that differ themselves, or from file names.
bool follows(const Loaded& loaded, const std::string& path) {
  const auto it = loaded.origins.find(path);
  return it == loaded.origins.end() || it->second.file.starts_with("derived(");
}

[[noreturn]] void unknown_key(const std::string& key) {
  const auto best = nearest_key(key);
  fail(ErrorKind::usage,
       "unknown-key",
       "there is no key `{}`{}\n  fix   'colossal-train config --help' lists the keys",
       key,
       best ? fmt::format("; did you mean `{}`?", *best) : "");
}

/// CONFIG (empty if there is none) and KEY, in whichever order they were given.
std::pair<std::string, std::string> config_and_key(const std::vector<std::string>& words) {
  const bool key_first = !fs::exists(words.front()) && explain_key(words.front());
  if (words.size() == 1) {
    return {"", words.front()};
  }
  return key_first ? std::pair(words[1], words[0]) : std::pair(words[0], words[1]);
}

}  // namespace

LoadOptions load_options(const ConfigOptions& options, std::optional<std::int64_t> world_size) {
  LoadOptions load;
  load.overlays = options.overlays;
  load.run_time = options.run_time.empty() ? start_time() : options.run_time;
  for (const std::string& text : options.sets) {
    load.overrides.push_back({text});
  }
  load.world_size = world_size;
  if (world_size) {
    load.world_origin = fmt::format("--world-size {}", *world_size);
  }
  return load;
}

std::string start_time() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(now));
}

int run_validate(const ValidateOptions& options, const DataCheck& check_data) {
  int code = 0;
  for (const std::string& path : options.configs) {
    const int one = validate_and_report(path, options, check_data);
    code = code == 0 ? one : code;
  }
  return code;
}

int run_config_show(const ShowOptions& options) {
  const Loaded loaded = load(options.config.config, load_options(options.config));
  fmt::print(stderr, "{}", render(loaded.diagnostics, diagnostic_form(false, STDERR_FILENO)));
  if (loaded.has_errors()) {
    return kConfigExit;
  }
  fmt::print("{}",
             options.origins   ? to_yaml_with_origins(loaded)
             : options.minimal ? to_minimal_yaml(loaded.config)
                               : to_yaml(loaded.config));
  return 0;
}

int run_config_explain(const ExplainOptions& options) {
  check(options.words.size() <= 2,
        ErrorKind::usage,
        "unexpected-argument",
        "'{}' is one argument too many: give KEY, or CONFIG and KEY",
        options.words.back());
  const auto [config, key] = config_and_key(options.words);
  std::optional<std::string> text;
  if (config.empty()) {
    text = explain_key(key);
  } else {
    const auto loaded = load_any(config, load_options(options.more));
    if (!loaded) {
      return kConfigExit;
    }
    text = explain(*loaded, key);
  }
  if (!text) {
    unknown_key(key);
  }
  fmt::print("{}", *text);
  return 0;
}

int run_config_diff(const DiffOptions& options) {
  const auto a = load_any(options.a, load_options({}));
  const auto b = load_any(options.b, load_options({}));
  if (!a || !b) {
    return kConfigExit;
  }
  std::string text;
  for (const Difference& difference : diff(a->config, b->config)) {
    if (follows(*a, difference.path) && follows(*b, difference.path)) {
      continue;
    }
    const auto line = [&](char sign, const std::string& value) {
      text += value.starts_with('(') ? "" : fmt::format("{}{}: {}\n", sign, difference.path, value);
    };
    line('-', difference.saved);
    line('+', difference.now);
  }
  if (!text.empty()) {
    fmt::print("--- {}\n+++ {}\n{}", options.a, options.b, text);
  }
  return 0;
}

}  // namespace colossal
