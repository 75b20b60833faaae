// How do words on the command line become a command? CLI11 definitions and its errors in our form.
#include "cli.hpp"

#include "checkpoint/checkpoint.hpp"
#include "comm/launch.hpp"
#include "config/load.hpp"
#include "config/suggest.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/commands.hpp"
#include "train/startup.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {
namespace {

/// Options of `inspect`, which has no counterpart in train/.
struct InspectCommand {
  std::string path;
  InspectOptions options;
  std::string diff;
  std::string format = "text";
};

/// Everything the command line can say.
struct CommandLine {
  CLI::App app{"Trains models on one or many processes from one YAML file.", "colossal-train"};
  bool quiet = false;
  bool verbose = false;
  TrainOptions train;
  ValidateOptions validate;
  PlanOptions plan;
  std::string plan_format = "text";
  EvalOptions eval;
  ShowOptions show;
  bool resolved = false;
  InspectCommand inspect;
  std::function<int()> action;  ///< set by the chosen command
};

/// The one positional that a command cannot do without; checked after unknown options are reported.
struct Needed {
  const CLI::App* command;
  std::string name;
};

template <class Value>
void add_option(
    CLI::App* command, const char* name, Value& value, const char* help, const char* kind) {
  command->add_option(name, value, help)->type_name(kind);
}

void add_sets(CLI::App* command, std::vector<std::string>& sets) {
  command->add_option("--set", sets, "override one key: --set optimizer.lr=1e-4 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_config(CLI::App* command, ConfigOptions& config) {
  command->add_option("CONFIG", config.config, "configuration file")->type_name("");
  add_sets(command, config.sets);
}

CLI::App* add_command(CLI::App& parent, const char* name, const char* help, const char* example) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->allow_extras();
  command->fallthrough();
  command->footer(std::string("\nExample:\n  ") + example);
  return command;
}

void add_train(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "train",
                                  "train, or continue a run",
                                  "colossal-train train configs/tiny-cpu.yaml --nproc 2 --set "
                                  "train.steps=100");
  TrainOptions& options = line.train;
  add_config(command, options.config);
  add_option(command, "--nproc", options.nproc, "processes to start on this machine", "N|auto");
  add_option(command,
             "--resume",
             options.resume,
             "auto (default), never, require, or a checkpoint to continue from",
             "MODE|PATH");
  add_option(command, "--output-dir", options.output_dir, "run directory (run.output_dir)", "DIR");
  command->add_flag(
      "--overwrite", options.overwrite, "start anew; an old run directory moves to NAME.old-<k>");
  command->add_flag("--dry-run", options.dry_run, "check and build everything, train no step");
  command
      ->add_option("--allow",
                   options.allow,
                   "accept this difference on resume (repeatable): train.global_batch_size or "
                   "data.fingerprint")
      ->check(CLI::IsMember({"train.global_batch_size", "data.fingerprint"}))
      ->type_name("KEY")
      ->allow_extra_args(false);
  command->callback([&line] { line.action = [&line] { return run_train(line.train); }; });
}

void add_validate(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "validate",
                                  "check configurations without running anything",
                                  "colossal-train validate configs/*.yaml --world-size 2");
  command->add_option("CONFIG", line.validate.configs, "configuration files")->type_name("");
  add_sets(command, line.validate.sets);
  command->add_option("--world-size", line.validate.world_size, "number of processes to check for")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_flag("--data", line.validate.data, "also open and check the data");
  command->callback([&line] { line.action = [&line] { return run_validate(line.validate); }; });
}

void add_plan(CommandLine& line) {
  CLI::App* command =
      add_command(line.app,
                  "plan",
                  "say what a run would do and need: mesh, batches, steps, memory",
                  "colossal-train plan configs/gpt-kjv-cpu.yaml --world-size 2 --format json");
  add_config(command, line.plan.config);
  command->add_option("--world-size", line.plan.world_size, "number of processes to plan for")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--format", line.plan_format, "text (default) or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([&line] {
    line.action = [&line] {
      line.plan.json = line.plan_format == "json";
      return run_plan(line.plan);
    };
  });
}

void add_eval(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "eval",
                                  "loss of a checkpoint on the evaluation data",
                                  "colossal-train eval --checkpoint runs/tiny-cpu --nproc 2");
  EvalOptions& options = line.eval;
  add_option(
      command, "--checkpoint", options.checkpoint, "checkpoint folder or run directory", "DIR");
  add_option(command,
             "--config",
             options.config,
             "use this configuration instead of the stored one",
             "CONFIG");
  add_sets(command, options.sets);
  add_option(command, "--nproc", options.nproc, "processes to start on this machine", "N|auto");
  command->callback([&line] { line.action = [&line] { return run_eval(line.eval); }; });
}

void add_inspect(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "inspect",
                                  "what a checkpoint holds, whether it is whole, how two differ",
                                  "colossal-train inspect runs/tiny-cpu --tensors --verify");
  InspectCommand& inspected = line.inspect;
  command->add_option("PATH", inspected.path, "checkpoint folder or run directory")->type_name("");
  command->add_flag("--tensors", inspected.options.tensors, "list every tensor");
  command->add_flag("--verify", inspected.options.verify, "read every byte and compare checksums");
  add_option(command, "--diff", inspected.diff, "compare with another checkpoint", "OTHER");
  command->add_option("--format", inspected.format, "text (default) or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([&line] {
    line.action = [&line] {
      InspectCommand& wanted = line.inspect;
      wanted.options.json = wanted.format == "json";
      if (!wanted.diff.empty()) {
        wanted.options.diff = wanted.diff;
      }
      fmt::print("{}", inspect(wanted.path, wanted.options));
      return 0;
    };
  });
}

void add_config_commands(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "config",
                                  "print configurations and their schema",
                                  "colossal-train config show configs/tiny-cpu.yaml --minimal");
  command->footer([] { return "\nKeys of a configuration:\n" + key_help(); });
  CLI::App* show = add_command(*command,
                               "show",
                               "print a configuration as the program understands it",
                               "colossal-train config show configs/tiny-cpu.yaml --resolved");
  add_config(show, line.show.config);
  CLI::Option* resolved =
      show->add_flag("--resolved", line.resolved, "every key with its value (default)");
  show->add_flag("--minimal", line.show.minimal, "only keys that differ from the defaults")
      ->excludes(resolved);
  show->callback([&line] { line.action = [&line] { return run_config_show(line.show); }; });
  CLI::App* schema =
      add_command(*command,
                  "schema",
                  "print the JSON Schema of configurations",
                  "colossal-train config schema > schemas/colossal-train.schema.json");
  schema->callback([&line] {
    line.action = [] {
      fmt::print("{}", json_schema());
      return 0;
    };
  });
}

void define(CommandLine& line) {
  line.app.allow_extras();
  line.app.set_version_flag("--version", "colossal-train " + build_id());
  line.app.add_flag("-q,--quiet", line.quiet, "warnings and errors only");
  line.app.add_flag("-v,--verbose", line.verbose, "debug messages too");
  line.app.footer(
      "\nExample:\n  colossal-train train configs/tiny-cpu.yaml\n\n"
      "'colossal-train COMMAND --help' explains a command. Exit codes: 0 success, 1 bug, 2 command "
      "line, 3 configuration,\n4 data, 5 checkpoint, 6 memory, 7 numerics, 8 distributed, 9 "
      "environment, 130 and 143 stopped by a signal.");
  add_train(line);
  add_validate(line);
  add_plan(line);
  add_eval(line);
  add_inspect(line);
  add_config_commands(line);
}

/// The innermost command that was named.
const CLI::App* chosen(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  return command;
}

std::vector<std::string> option_names(const CLI::App* command) {
  std::vector<std::string> names;
  for (; command != nullptr; command = command->get_parent()) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
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
  const std::optional<std::string> nearest = detail::nearest(word, known);
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : "";
}

[[noreturn]] void usage(const CLI::App* command, std::string_view id, const std::string& message) {
  fail(ErrorKind::usage, id, "{}\n  fix   see '{} --help'", message, full_name(command));
}

/// Words that nothing took: an unknown option, an unknown command, or one argument too many.
void refuse_extras(const CLI::App& app, const CLI::App* command) {
  std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (extras.empty()) {
    return;
  }
  std::string word = extras.front();
  for (const std::string& extra : extras) {
    if (extra.starts_with("-") && extra.size() > 1) {
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

/// The arguments a command cannot do without. CLI11's own `required` would hide a mistyped option.
void require_arguments(const CommandLine& line, const CLI::App* command) {
  const auto need = [command](bool given, const char* name) {
    if (!given) {
      usage(command, "missing-argument", fmt::format("{} is missing", name));
    }
  };
  const std::string& name = command->get_name();
  if (!command->get_subcommands({}).empty()) {
    need(false, "a command");
  } else if (name == "train") {
    need(!line.train.config.config.empty(), "CONFIG");
  } else if (name == "plan") {
    need(!line.plan.config.config.empty(), "CONFIG");
  } else if (name == "show") {
    need(!line.show.config.config.empty(), "CONFIG");
  } else if (name == "validate") {
    need(!line.validate.configs.empty(), "CONFIG");
  } else if (name == "eval") {
    need(!line.eval.checkpoint.empty(), "--checkpoint");
  } else if (name == "inspect") {
    need(!line.inspect.path.empty(), "PATH");
  }
}

void set_verbosity(CommandLine& line) {
  if (line.quiet && line.verbose) {
    usage(&line.app, "usage", "-q and -v exclude each other");
  }
  if (line.quiet || line.verbose) {
    const log::Level level = line.quiet ? log::Level::warn : log::Level::debug;
    line.train.log_level = level;
    line.eval.log_level = level;
    log::configure({.level = level, .rank = 0, .folder = {}});
  }
}

/// Parses and runs. Returns the exit code; 0 after --help and --version.
int parse_and_run(CommandLine& line, int argc, char** argv) {
  define(line);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  line.train.arguments = arguments;
  line.eval.arguments = arguments;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return line.app.exit(error);  // --help, --version
    }
    usage(chosen(line.app), "usage", error.what());
  }
  const CLI::App* command = chosen(line.app);
  refuse_extras(line.app, command);
  require_arguments(line, command);
  set_verbosity(line);
  return line.action();
}

/// One message on stderr: the id ends the first line, the rest follows as it is.
void print_error(const Error& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find('\n');
  const std::string_view rest = end == std::string_view::npos ? "" : text.substr(end);
  fmt::print(stderr, "error: {} [{}]{}\n", text.substr(0, end), error.id(), rest);
}

/// Results that cannot be written are a failure, unless the reader only had enough (`| head`).
int flush_results(int code) {
  if (std::fflush(stdout) == 0 || errno == EPIPE || code != 0) {
    return code;
  }
  std::perror("error: cannot write the results to stdout");
  return static_cast<int>(ErrorKind::environment);
}

}  // namespace

int run_cli(int argc, char** argv) noexcept {
  try {
    guard_child();
    CommandLine line;
    return flush_results(parse_and_run(line, argc, argv));
  } catch (const std::exception& error) {
    const Error known = to_error(error);
    std::fflush(stdout);
    print_error(known);
    return known.exit_code();
  }
}

}  // namespace colossal
