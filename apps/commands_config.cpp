// What can be said to the commands that read configurations: validate, config show, config schema?
#include "commands.hpp"
#include "config/load.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

void add_validate(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "validate",
                                  "check configurations without running anything",
                                  "colossal-train validate configs/*.yaml --world-size 2");
  const auto options = std::make_shared<ValidateOptions>();
  need(line, command, add_option(command, "CONFIG", options->configs, "configuration files", ""));
  add_sets(command, options->sets);
  add_world_size(command, options->world_size, "number of processes to check for");
  command->add_flag("--data", options->data, "also open and check the data");
  set_action(line, command, [options] { return run_validate(*options); });
}

void add_show(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "show",
                                  "print a configuration as the program understands it",
                                  "colossal-train config show configs/tiny-cpu.yaml --resolved");
  struct Options {
    ShowOptions show;
    bool resolved = false;
  };
  const auto options = std::make_shared<Options>();
  add_config(line, command, options->show.config);
  CLI::Option* resolved =
      command->add_flag("--resolved", options->resolved, "every key with its value (default)");
  command->add_flag("--minimal", options->show.minimal, "only keys that differ from the defaults")
      ->excludes(resolved);
  set_action(line, command, [options] { return run_config_show(options->show); });
}

void add_schema(CommandLine& line, CLI::App& parent) {
  CLI::App* command =
      add_command(parent,
                  "schema",
                  "print the JSON Schema of configurations",
                  "colossal-train config schema > schemas/colossal-train.schema.json");
  set_action(line, command, [] {
    fmt::print("{}", json_schema());
    return 0;
  });
}

}  // namespace

void add_config_commands(CommandLine& line) {
  add_validate(line);
  CLI::App* parent = add_command(line.app,
                                 "config",
                                 "print configurations and their schema",
                                 "colossal-train config show configs/tiny-cpu.yaml --minimal");
  parent->footer([] { return "\nKeys of a configuration:\n" + key_help(); });
  add_show(line, *parent);
  add_schema(line, *parent);
}

}  // namespace colossal
