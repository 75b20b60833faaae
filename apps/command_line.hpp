// What do all commands share while the command line is read? The state around them, and helpers
// that define options.
#pragma once

#include "core/log.hpp"
#include "train/commands.hpp"

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// The command line being read. Commands add themselves to `app`; the chosen one leaves its action.
struct CommandLine {
  CLI::App app{"Trains models on one or many processes from one YAML file.", "colossal-train"};
  bool quiet = false;
  bool verbose = false;
  bool is_rank = false;  ///< a launcher of ours reads the messages: no colours, whatever is asked
  std::vector<std::string> arguments;   ///< argv[1..]
  bool json_diagnostics = false;        ///< --diagnostics json, of the commands that have it
  std::optional<log::Level> log_level;  ///< -q, -v; known when the action runs
  std::function<int()> action;          ///< set by the chosen command; returns the exit code
  /// What a command cannot do without; asked for after unknown options are reported.
  std::map<const CLI::App*, std::vector<const CLI::Option*>> needed;
};

/// A command below `parent`, with its example; it takes extra words, which are refused after
/// parsing with the nearest known word.
CLI::App* add_command(CLI::App& parent, const char* name, const char* help, const char* example);

/// Makes `action` what the program does if `command` is chosen.
void set_action(CommandLine& line, CLI::App* command, std::function<int()> action);

/// Marks an option or positional that `command` cannot do without.
void need(CommandLine& line, const CLI::App* command, const CLI::Option* option);

/// An option with the word that stands for its value in the help ("" for a positional).
template <class Value>
CLI::Option* add_option(
    CLI::App* command, const char* name, Value& value, const char* help, const char* kind) {
  return command->add_option(name, value, help)->type_name(kind);
}

/// An option that may be repeated, one value each time.
CLI::Option* add_repeated(CLI::App* command,
                          const char* name,
                          std::vector<std::string>& values,
                          const char* help,
                          const char* kind);

/// --set, for commands that read configurations.
void add_sets(CLI::App* command, std::vector<std::string>& sets);

/// --config-overlay and --set.
void add_overrides(CLI::App* command, ConfigOptions& config);

/// --diagnostics text|json; `json` is set while parsing, and what `line` knows of it.
void add_diagnostics(CommandLine& line, CLI::App* command, bool& json);

/// CONFIG, --config-overlay and --set.
void add_config(CommandLine& line, CLI::App* command, ConfigOptions& config);

/// --checkpoint, which the command cannot do without.
void add_checkpoint(CommandLine& line, CLI::App* command, std::string& checkpoint);

/// --format text|json; `json` is set while parsing.
void add_format(CLI::App* command, bool& json);

/// --nproc.
void add_nproc(CLI::App* command, std::optional<std::string>& nproc);

/// --world-size.
void add_world_size(CLI::App* command, std::optional<std::int64_t>& world_size, const char* help);

/// Reads argv into `line`. Returns whether the action should run: not after --help and --version,
/// which are printed here. Errors: usage (unknown-option, unknown-command, unexpected-argument,
/// missing-argument, usage).
[[nodiscard]] bool parse(CommandLine& line, int argc, char** argv);

}  // namespace colossal
