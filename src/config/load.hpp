// How does YAML become a frozen Config? Phases P0-P5 of config-and-cli 1.6, each reporting all of
// its errors.
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Where a value comes from. file "configs/a.yaml" with line and col (1-based), "--set" with line =
/// number of the flag,
/// "<default>", or "derived(<rule>)".
struct Origin {
  std::string file;
  int line = 0;
  int col = 0;
  std::vector<std::string> included_from;  ///< "A.yaml:7:3", innermost first
  std::string via;  ///< "preset gpt2-1.5b": what put the value here; the place is then the preset's
};

/// A value that takes part in a diagnostic: `with model.num_heads = 25 (configs/a.yaml:5:3)`.
struct Related {
  std::string path;
  std::string value;
  Origin origin;
};

/// One error, warning or note about the configuration.
struct Diagnostic {
  std::string id;     ///< "unknown-key"
  std::string path;   ///< key path; empty if the whole file is meant
  std::string value;  ///< value of that key, if it has one
  std::string message;
  std::string why;  ///< one sentence; may be empty
  std::string fix;
  Origin origin;
  std::vector<Related> related;
  enum class Severity : std::uint8_t { error, warning, note } severity = Severity::error;
};

/// One --set KEY=VALUE (VALUE is a YAML flow node) or KEY@FILE as written on the command line.
struct Override {
  std::string text;
  std::string by = {};  ///< what set it in place of a user, "<eval>"; not counted as --set#N then
};

/// What load() was given besides the file.
struct LoadOptions {
  std::vector<std::string> overlays;  ///< --config-overlay files: they beat the file, in order
  std::vector<Override> overrides;    ///< they beat overlays
  /// Value of ${run.time}, "YYYYmmdd-HHMMSS": taken once for all ranks of a run.
  std::string run_time;
  /// Number of processes, if known: resolves parallel.data and checks the mesh.
  std::optional<std::int64_t> world_size;
  /// How world_size was found ("no launcher environment found"); quoted in batch-mismatch and
  /// world-size.
  std::string world_origin;
  /// Dedicated flags; they beat --set. Unset: not given.
  std::optional<std::string> output_dir;
  std::optional<std::string> resume;
  /// The text was written by a program, perhaps an older one: keys in it that belong to another
  /// type or placement are dropped. Overrides are checked as ever.
  bool stored = false;
};

/// What load() found.
struct Loaded {
  /// By key path: where each value comes from. Absent: the schema default.
  std::map<std::string, Origin> origins;
  /// By path: where each mapping that a file has begins.
  std::map<std::string, Origin> sections;
  /// By key path: what every layer wrote, lowest first, before `${...}` was replaced.
  std::map<std::string, std::vector<Related>> layers;
  bool uses_run_time = false;  ///< ${run.time} is used
  Config config;               ///< meaningful only if !has_errors()
  std::vector<Diagnostic>
      diagnostics;  ///< every error of the first failing phase (cap 20), sorted by position
  [[nodiscard]] bool has_errors() const;  ///< any diagnostic that is not a warning
};

/// Reads, composes (extends, --set), checks and derives; "-" is standard input, whose relative
/// paths start at the working directory. Pure: depends on the files and options only. Never throws
/// for bad user input: that becomes diagnostics.
[[nodiscard]] Loaded load(const std::filesystem::path& yaml, const LoadOptions& options = {});

/// `text` with every value of a secret environment variable (of at least 3 characters) replaced by
/// its `${env:NAME}`.
[[nodiscard]] std::string redact(const Secrets& secrets, std::string text);

/// As load() for a text that lies in no file; `name` stands for it in diagnostics, and relative
/// paths in it start at the working directory.
[[nodiscard]] Loaded load_text(std::string_view text,
                               const std::string& name,
                               const LoadOptions& options = {});

/// The rules about the length of a run once the data have said it (train.epochs): what load() could
/// not find yet. `loaded` has no errors; `steps` is the length.
[[nodiscard]] std::vector<Diagnostic> check_length(const Loaded& loaded, std::int64_t steps);

/// What people are shown of a key whose value turned out to be wrong after load().
struct KeyPlace {
  std::string place;  ///< "a.yaml:3:7", "--set#1", or "<default>" if nobody wrote it or its section
  std::string lines;  ///< its source line with a caret, and `key PATH = VALUE (place)`
};

/// Where the value of `key` was written; `loaded` has no errors.
[[nodiscard]] KeyPlace place_of(const Loaded& loaded, std::string_view key);

/// How diagnostics are told: to people, the same with the codes of colours, or to programs.
enum class DiagnosticForm : std::uint8_t { text, colored, json };

/// The form for a stream (1, 2): JSON if asked for, else text, with colours where --color allows.
[[nodiscard]] DiagnosticForm diagnostic_form(bool json, int stream);

/// Diagnostics in the form of config-and-cli section 4: FILE:LINE:COL, source line with caret, key,
/// with, why, fix; then a summary line. As JSON: one object per line and diagnostic with id,
/// severity, message, file, line, column, path, related and fix; unknown lines and columns are 0.
/// Empty for no diagnostics.
[[nodiscard]] std::string render(std::span<const Diagnostic> diagnostics,
                                 DiagnosticForm form = DiagnosticForm::text);

/// Resolved YAML: every field present, paths absolute; `load` of it gives the same Config and the
/// same text.
[[nodiscard]] std::string to_yaml(const Config& config);

/// Only the keys that differ from the schema defaults.
[[nodiscard]] std::string to_minimal_yaml(const Config& config);

/// JSON Schema (draft-07) of the configuration, pretty-printed with a final newline.
[[nodiscard]] std::string json_schema();

/// One block of text per key, in registry order: path, type, range, default and meaning; for
/// --help.
[[nodiscard]] std::string key_help();

/// Stable hash of the configuration parts that every rank must agree on (all of them).
[[nodiscard]] std::string config_hash(const Config& config);

/// One line `key = value` for every key that applies, in registry order, secrets as their
/// expressions: what people are shown of two configurations with different hashes.
[[nodiscard]] std::string key_values(const Config& config);

/// Resume class of a key (config-and-cli 6.4), from the field registry.
enum class ResumeClass : std::uint8_t { must_match, free, noted, allow };

/// One key whose value changed since a checkpoint was written.
struct Difference {
  std::string path;
  std::string saved;
  std::string now;
  ResumeClass resume_class = ResumeClass::free;
};

/// Keys whose values differ between a checkpoint's configuration and this one, in registry order.
[[nodiscard]] std::vector<Difference> diff(const Config& saved, const Config& now);

/// YAML word of an enumerator, e.g. yaml_word(Precision::fp32) == "fp32".
[[nodiscard]] std::string yaml_word(Precision value);
[[nodiscard]] std::string yaml_word(ModelType value);
[[nodiscard]] std::string yaml_word(ActivationKind value);
[[nodiscard]] std::string yaml_word(OptimizerType value);
[[nodiscard]] std::string yaml_word(SchedulerType value);
[[nodiscard]] std::string yaml_word(DataType value);
[[nodiscard]] std::string yaml_word(Placement value);

}  // namespace colossal
