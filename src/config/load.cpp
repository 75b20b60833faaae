// In which order do the phases run, and when do they stop?
#include "config/load.hpp"

#include "config/bind.hpp"
#include "config/compose.hpp"
#include "config/derive.hpp"
#include "config/interpolate.hpp"
#include "config/layers.hpp"
#include "config/origins.hpp"
#include "config/overrides.hpp"
#include "config/rules/rules.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace colossal {
namespace detail {
namespace {

constexpr std::size_t kMaxErrors = 20;

/// Phases P4 and P5.
void finish(Loaded& loaded, Origins& origins, const DeriveInput& input, Report& report) {
  derive(loaded.config, origins, input, report);
  if (!report.has_errors()) {
    check_rules({loaded.config, origins, input, report});
  } else {  // which processes there are follows from no batch, and mending that alone would not do
    check_mesh({loaded.config, origins, input, report});
  }
  loaded.origins.insert(origins.values().begin(), origins.values().end());
  loaded.sections.insert(origins.sections().begin(), origins.sections().end());
}

/// Adds to each diagnostic the values that `${...}` inserted at its key, and hides secrets.
void name_sources(std::vector<Diagnostic>& items,
                  const Interpolated& inserted,
                  const Secrets& secrets) {
  for (Diagnostic& item : items) {
    const auto it = inserted.sources.find(item.path);
    if (it != inserted.sources.end()) {
      item.related.insert(item.related.end(), it->second.begin(), it->second.end());
    }
    for (std::string* text : {&item.value, &item.message, &item.why, &item.fix}) {
      *text = redact(secrets, *text);
    }
    for (Related& related : item.related) {
      related.value = redact(secrets, related.value);
    }
  }
}

/// What load() reads: a file, or a text that `yaml` only names.
struct Source {
  const std::filesystem::path& yaml;
  std::optional<std::string_view> text = std::nullopt;

  /// The default name of the run.
  [[nodiscard]] std::string stem() const {
    return yaml == kStdinName ? "stdin" : yaml.stem().string();
  }
};

/// Phases P0 to P5; each runs only if no earlier one found an error.
void run_phases(const Source& source, const LoadOptions& options, Loaded& loaded, Report& report) {
  Composer composer(report);
  auto root = source.text ? composer.load_text(*source.text, source.yaml.string())
                          : composer.load(source.yaml);
  if (root && !report.has_errors()) {
    apply_overlays(*root, options, composer);
    apply_overrides(*root, options, composer, report);
  }
  if (!root || report.has_errors()) {
    return;
  }
  loaded.layers = layers_of(*root);
  const Interpolated inserted = interpolate(*root, {source.stem(), options.run_time}, report);
  loaded.uses_run_time = inserted.uses_run_time;
  Origins origins;
  if (!report.has_errors()) {
    bind(*root, options.stored, loaded.config, origins, report);
  }
  loaded.config.secrets.values = inserted.secrets;
  if (!report.has_errors()) {
    finish(loaded, origins, {source.stem(), options.world_size, options.world_origin}, report);
  }
  name_sources(report.items(), inserted, loaded.config.secrets);
}

/// Order of a reader's eye: the main file, other files, the command line, values nobody wrote.
void sort_by_place(std::vector<Diagnostic>& items, const std::string& main_file) {
  const auto rank = [&](const Origin& origin) {
    const int group = origin.file == main_file        ? 0
                      : origin.file.starts_with("--") ? 2
                      : origin.line == 0              ? 3
                                                      : 1;
    return std::tuple(group, origin.file, origin.line, origin.col);
  };
  std::stable_sort(items.begin(), items.end(), [&](const Diagnostic& a, const Diagnostic& b) {
    return rank(a.origin) < rank(b.origin);
  });
}

/// Keeps the first errors; the rest are usually consequences. What is cut is said.
void cap_errors(std::vector<Diagnostic>& items) {
  std::size_t errors = 0;
  const auto surplus = [&](const Diagnostic& item) {
    return item.severity == Diagnostic::Severity::error && ++errors > kMaxErrors;
  };
  items.erase(std::remove_if(items.begin(), items.end(), surplus), items.end());
  if (errors > kMaxErrors) {
    Diagnostic& note = items.emplace_back();
    note.id = "more-errors";
    note.severity = Diagnostic::Severity::note;
    note.origin.file = items.front().origin.file;
    note.message = fmt::format("{} more errors are not shown", errors - kMaxErrors);
  }
}

Loaded run(const Source& source, const LoadOptions& options) {
  Loaded loaded;
  Report report;
  run_phases(source, options, loaded, report);
  loaded.diagnostics = std::move(report.items());
  settle(loaded.diagnostics, source.yaml.string());
  return loaded;
}

/// What is said of a standard input that cannot be read.
Loaded unreadable_stdin() {
  Loaded loaded;
  Report report;
  Origin origin;
  origin.file = kStdinName;
  report.error("file-not-readable", "", origin, "standard input cannot be read").fix =
      "pipe or redirect a YAML file into it";
  loaded.diagnostics = std::move(report.items());
  return loaded;
}

}  // namespace

void settle(std::vector<Diagnostic>& items, const std::string& main_file) {
  sort_by_place(items, main_file);
  cap_errors(items);
}

}  // namespace detail

bool Loaded::has_errors() const {
  return std::any_of(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& item) {
    return item.severity == Diagnostic::Severity::error;
  });
}

std::string redact(const Secrets& secrets, std::string text) {
  constexpr std::size_t kShortest = 3;  // shorter ones would turn up in ordinary words
  for (const auto& [value, expression] : secrets.values) {
    if (value.size() < kShortest) {
      continue;
    }
    for (std::size_t at = text.find(value); at != std::string::npos;
         at = text.find(value, at + expression.size())) {
      text.replace(at, value.size(), expression);
    }
  }
  return text;
}

Loaded load(const std::filesystem::path& yaml, const LoadOptions& options) {
  if (yaml == "-") {
    const std::optional<std::string>& text = stdin_text();
    return text ? load_text(*text, detail::kStdinName, options) : detail::unreadable_stdin();
  }
  return detail::run({.yaml = yaml}, options);
}

Loaded load_text(std::string_view text, const std::string& name, const LoadOptions& options) {
  const std::filesystem::path named = name;
  return detail::run({.yaml = named, .text = text}, options);
}

}  // namespace colossal
