// What can be said to the commands that only read configurations: validate and config ...?
#include "commands.hpp"
#include "config/explain.hpp"
#include "config/load.hpp"
#include "train/examples.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace colossal {
namespace {

void add_validate(CommandLine& line, DataCheck check_data) {
  CLI::App* command = add_command(line.app,
                                  "validate",
                                  "check configurations without running anything",
                                  "colossal-train validate configs/*.yaml --world-size 2");
  const auto options = std::make_shared<ValidateOptions>();
  need(line, command, add_option(command, "CONFIG", options->configs, "configuration files", ""));
  add_overrides(command, options->more);
  add_diagnostics(line, command, options->more.json_diagnostics);
  add_world_size(command, options->world_size, "number of processes to check for");
  command->add_flag("--data", options->data, "also open and check the data");
  set_action(line, command, [options, check_data = std::move(check_data)] {
    return run_validate(*options, check_data);
  });
}

void add_show(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "show",
                                  "print a configuration as the program understands it",
                                  "colossal-train config show configs/tiny-cpu.yaml --origins");
  struct Options {
    ShowOptions show;
    bool resolved = false;
  };
  const auto options = std::make_shared<Options>();
  add_config(line, command, options->show.config);
  CLI::Option* resolved =
      command->add_flag("--resolved", options->resolved, "every key with its value (default)");
  CLI::Option* minimal = command->add_flag(
      "--minimal", options->show.minimal, "only keys that differ from the defaults");
  minimal->excludes(resolved);
  command
      ->add_flag("--origins", options->show.origins, "every key, with where its value comes from")
      ->excludes(resolved)
      ->excludes(minimal);
  set_action(line, command, [options] { return run_config_show(options->show); });
}

void add_explain(CommandLine& line, CLI::App& parent) {
  CLI::App* command =
      add_command(parent,
                  "explain",
                  "what a key means; with a CONFIG, its value and who set it",
                  "colossal-train config explain configs/tiny-cpu.yaml optimizer.lr");
  const auto options = std::make_shared<ExplainOptions>();
  need(line,
       command,
       add_option(command, "KEY", options->words, "KEY of a configuration, or CONFIG KEY", ""));
  add_overrides(command, options->more);
  set_action(line, command, [options] { return run_config_explain(*options); });
}

void add_diff(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "diff",
                                  "keys whose values differ between two files or run directories",
                                  "colossal-train config diff configs/tiny-cpu.yaml runs/tiny-cpu");
  const auto options = std::make_shared<DiffOptions>();
  need(line, command, add_option(command, "A", options->a, "file or run directory", ""));
  need(line, command, add_option(command, "B", options->b, "file or run directory", ""));
  set_action(line, command, [options] { return run_config_diff(*options); });
}

void add_init(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "init",
                                  "print an example to start from",
                                  "colossal-train config init tiny-cpu -o my.yaml");
  const auto options = std::make_shared<InitOptions>();
  need(line, command, add_option(command, "NAME", options->name, "name of an example", ""));
  add_option(command, "-o,--output", options->output, "write it to this file", "FILE");
  command->footer([] {
    std::string text = "\nNames:\n";
    for (const Example& example : examples()) {
      text += fmt::format("  {}\n", example.name);
    }
    return text;
  });
  set_action(line, command, [options] { return run_config_init(*options); });
}

void add_config_schema(CommandLine& line, CLI::App& parent) {
  CLI::App* command =
      add_command(parent,
                  "schema",
                  "print the JSON Schema of configurations, or their keys as Markdown",
                  "colossal-train config schema > schemas/colossal-train.schema.json");
  const auto markdown = std::make_shared<bool>(false);
  command
      ->add_option_function<std::string>(
          "--format",
          [markdown](const std::string& format) { *markdown = format == "markdown"; },
          "json (default) or markdown")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"json", "markdown"}));
  set_action(line, command, [markdown] {
    fmt::print("{}", *markdown ? key_markdown() : json_schema());
    return 0;
  });
}

}  // namespace

void add_config_commands(CommandLine& line, DataCheck check_data) {
  add_validate(line, std::move(check_data));
  CLI::App* parent = add_command(line.app,
                                 "config",
                                 "print, explain and compare configurations",
                                 "colossal-train config show configs/tiny-cpu.yaml --minimal");
  parent->footer([] { return "\nKeys of a configuration:\n" + key_help(); });
  add_show(line, *parent);
  add_explain(line, *parent);
  add_diff(line, *parent);
  add_init(line, *parent);
  add_config_schema(line, *parent);
}

}  // namespace colossal
