// What can be said to the commands of a sweep: expand, status, collect, schema?
#include "train/commands_sweep.hpp"

#include "commands.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Form = SweepOptions::Form;

const std::map<std::string, Form>& forms() {
  static const std::map<std::string, Form> words = {{"text", Form::text},
                                                    {"tsv", Form::text},
                                                    {"json", Form::json},
                                                    {"commands", Form::commands},
                                                    {"script", Form::script},
                                                    {"csv", Form::csv}};
  return words;
}

/// A command that reads a sweep file; the first of its forms is the default.
std::shared_ptr<SweepOptions> add_sweep_file(CommandLine& line,
                                             CLI::App* command,
                                             const std::vector<std::string>& words,
                                             const char* help) {
  auto options = std::make_shared<SweepOptions>();
  need(line, command, add_option(command, "SWEEP", options->file, "file of the sweep", ""));
  command
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& word) { options->form = forms().at(word); },
          help)
      ->type_name("FORMAT")
      ->check(CLI::IsMember(words));
  command->add_flag(
      "--accept", options->accept, "folders of trials that the sweep no longer has are left alone");
  add_diagnostics(line, command, options->json_diagnostics);
  return options;
}

void add_expand(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(
      parent,
      "expand",
      "check all trials and print them: index, id, state, overrides",
      "colossal-train sweep expand configs/sweeps/lr-batch.yaml --format commands | sh");
  const auto options =
      add_sweep_file(line,
                     command,
                     {"tsv", "json", "commands", "script"},
                     "tsv (default), json, commands for a shell, or script for scripts/sweep.sh");
  set_action(line, command, [options] { return run_sweep_expand(*options); });
}

void add_status(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "status",
                                  "how far each trial is",
                                  "colossal-train sweep status configs/sweeps/lr-batch.yaml");
  const auto options = add_sweep_file(line, command, {"text", "json"}, "text (default) or json");
  set_action(line, command, [options] { return run_sweep_status(*options); });
}

void add_collect(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "collect",
                                  "what each trial reached, also as results.csv in their folder",
                                  "colossal-train sweep collect configs/sweeps/lr-batch.yaml");
  const auto options =
      add_sweep_file(line, command, {"text", "csv", "json"}, "text (default), csv or json");
  set_action(line, command, [options] { return run_sweep_collect(*options); });
}

void add_sweep_schema(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "schema",
                                  "JSON Schema of sweep files, for editors",
                                  "colossal-train sweep schema > schemas/sweep.schema.json");
  set_action(line, command, [] { return run_sweep_schema(); });
}

}  // namespace

void add_sweep_commands(CommandLine& line) {
  CLI::App* parent = add_command(line.app,
                                 "sweep",
                                 "many runs of one configuration with different values",
                                 "colossal-train sweep expand configs/sweeps/lr-batch.yaml");
  add_expand(line, *parent);
  add_status(line, *parent);
  add_collect(line, *parent);
  add_sweep_schema(line, *parent);
}

}  // namespace colossal
