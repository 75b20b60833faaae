// How is argv read, and how are its mistakes explained? CLI11's errors in our form.
#include "command_line.hpp"

#include "config/suggest.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace colossal {
namespace {

/// The innermost command that was named.
const CLI::App* chosen(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  return command;
}

/// Appends the long names of an option, with their dashes.
void append_names(const CLI::Option& option, std::vector<std::string>& names) {
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
}

std::vector<std::string> option_names(const CLI::App* command) {
  std::vector<std::string> names;
  for (; command != nullptr; command = command->get_parent()) {
    for (const CLI::Option* option : command->get_options()) {
      append_names(*option, names);
    }
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command->get_subcommands({})) {
    names.push_back(sub->get_name());
  }
  return names;
}

/// "colossal-train config show": how to ask for the help of a command.
std::string full_name(const CLI::App* command) {
  const CLI::App* parent = command->get_parent();
  return parent == nullptr ? command->get_name() : full_name(parent) + " " + command->get_name();
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::optional<std::string> meant = nearest(word, known);
  return meant ? fmt::format("; did you mean '{}'?", *meant) : "";
}

[[noreturn]] void usage(const CLI::App* command, std::string_view id, const std::string& message) {
  fail(ErrorKind::usage, id, "{}\n  fix   see '{} --help'", message, full_name(command));
}

/// Words that nothing took: an unknown option, an unknown command, or one argument too many. After
/// "--" no word is an option.
void refuse_extras(const CommandLine& line, const CLI::App* command) {
  std::vector<std::string> extras = line.app.remaining(/*recurse=*/true);
  const auto mark = std::find(line.arguments.begin(), line.arguments.end(), "--");
  std::erase(extras, "--");  // CLI11 leaves it among them
  if (extras.empty()) {
    return;
  }
  std::string word = extras.front();
  for (const std::string& extra : extras) {
    const bool literal = std::find(mark, line.arguments.end(), extra) != line.arguments.end();
    if (extra.starts_with("-") && extra.size() > 1 && !literal) {
      word = extra.substr(0, extra.find('='));
      usage(command,
            "unknown-option",
            fmt::format("'{}' has no option '{}'{}",
                        full_name(command),
                        word,
                        did_you_mean(word, option_names(command))));
    }
  }
  const std::vector<std::string> commands = command_names(command);
  if (commands.empty()) {
    usage(command, "unexpected-argument", fmt::format("'{}' is one argument too many", word));
  }
  usage(
      command,
      "unknown-command",
      fmt::format(
          "'{}' is no command of '{}'{}", word, full_name(command), did_you_mean(word, commands)));
}

/// CLI11's own `required` would hide a mistyped option.
void require_arguments(const CommandLine& line, const CLI::App* command) {
  if (!command->get_subcommands({}).empty()) {
    usage(command, "missing-argument", "a command is missing");
  }
  const auto it = line.needed.find(command);
  if (it == line.needed.end()) {
    return;
  }
  for (const CLI::Option* option : it->second) {
    if (option->count() == 0) {
      usage(command, "missing-argument", fmt::format("{} is missing", option->get_name()));
    }
  }
}

void set_verbosity(CommandLine& line) {
  if (line.quiet && line.verbose) {
    usage(&line.app, "usage", "-q and -v exclude each other");
  }
  if (line.quiet || line.verbose) {
    line.log_level = line.quiet ? log::Level::warn : log::Level::debug;
    log::configure({.level = *line.log_level, .rank = 0, .folder = {}});
  }
}

}  // namespace

CLI::App* add_command(CLI::App& parent, const char* name, const char* help, const char* example) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->allow_extras();
  command->fallthrough();
  command->footer(std::string("\nExample:\n  ") + example);
  return command;
}

void set_action(CommandLine& line, CLI::App* command, std::function<int()> action) {
  command->callback([&line, action = std::move(action)] { line.action = action; });
}

void need(CommandLine& line, const CLI::App* command, const CLI::Option* option) {
  line.needed[command].push_back(option);
}

CLI::Option* add_repeated(CLI::App* command,
                          const char* name,
                          std::vector<std::string>& values,
                          const char* help,
                          const char* kind) {
  return command->add_option(name, values, help)->type_name(kind)->allow_extra_args(false);
}

void add_sets(CLI::App* command, std::vector<std::string>& sets) {
  add_repeated(command,
               "--set",
               sets,
               "override one key: --set optimizer.lr=1e-4, or --set KEY@FILE (repeatable)",
               "KEY=VALUE");
}

void add_overrides(CLI::App* command, ConfigOptions& config) {
  add_repeated(command,
               "--config-overlay",
               config.overlays,
               "a file whose keys beat those of CONFIG (repeatable)",
               "FILE");
  add_sets(command, config.sets);
}

void add_diagnostics(CommandLine& line, CLI::App* command, bool& json) {
  command
      ->add_option_function<std::string>(
          "--diagnostics",
          [&line, &json](const std::string& form) {
            json = form == "json";
            line.json_diagnostics = json;
          },
          "how mistakes in configurations and errors are printed: text (default), or json on "
          "stdout")
      ->type_name("FORM")
      ->check(CLI::IsMember({"text", "json"}));
}

void add_config(CommandLine& line, CLI::App* command, ConfigOptions& config) {
  need(line, command, add_option(command, "CONFIG", config.config, "configuration file", ""));
  add_overrides(command, config);
}

void add_checkpoint(CommandLine& line, CLI::App* command, std::string& checkpoint) {
  need(
      line,
      command,
      add_option(command, "--checkpoint", checkpoint, "checkpoint folder or run directory", "DIR"));
}

void add_format(CLI::App* command, bool& json) {
  command
      ->add_option_function<std::string>(
          "--format",
          [&json](const std::string& format) { json = format == "json"; },
          "text (default) or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
}

void add_nproc(CLI::App* command, std::optional<std::string>& nproc) {
  add_option(command, "--nproc", nproc, "processes to start on this machine", "N|auto");
}

void add_world_size(CLI::App* command, std::optional<std::int64_t>& world_size, const char* help) {
  add_option(command, "--world-size", world_size, help, "N")->check([](const std::string& text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const bool good = error == std::errc{} && stop == end && number >= 1;
    return good ? "" : fmt::format("'{}' is no number of processes; give 1 or more", text);
  });
}

bool parse(CommandLine& line, int argc, char** argv) {
  line.arguments.assign(argv + 1, argv + argc);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      line.app.exit(error);  // prints --help or --version
      return false;
    }
    usage(chosen(line.app), "usage", error.what());
  }
  const CLI::App* command = chosen(line.app);
  refuse_extras(line, command);
  require_arguments(line, command);
  set_verbosity(line);
  return true;
}

}  // namespace colossal
