// What can be said to the commands that look at this machine: doctor, bench?
#include "commands.hpp"
#include "train/commands_bench.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

void add_doctor(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "doctor",
                                  "try out this machine: libraries, limits, network, checkpoints",
                                  "colossal-train doctor --nproc 4");
  const auto options = std::make_shared<DoctorOptions>();
  add_nproc(command, options->nproc);
  command->add_flag("--json", options->json, "one JSON object instead of text");
  // For the processes that doctor starts itself; no group: not in the help.
  add_option(command, "--probe", options->probe, "leave the result of one process here", "FILE")
      ->group("");
  set_action(line, command, [options] { return run_doctor(*options); });
}

void add_bench(CommandLine& line) {
  CLI::App* command =
      add_command(line.app,
                  "bench",
                  "measure this machine: copies, products, kernels, updates, "
                  "collectives, steps",
                  "colossal-train bench kernels step --config configs/tiny-cpu.yaml");
  const auto options = std::make_shared<BenchOptions>();
  command
      ->add_option("PART",
                   options->parts,
                   "what to measure; default: all that make sense for model and processes")
      ->type_name("")
      ->check(CLI::IsMember(bench_part_names()));
  add_option(command,
             "--config",
             options->config.config,
             "model and batch to measure (default: a small gpt; on a GPU gpt2-124m)",
             "CONFIG");
  add_overrides(command, options->config);
  add_nproc(command, options->nproc);
  add_option(command, "--steps", options->steps, "steps that `step` measures", "N")
      ->check([](const std::string& text) {
        return text.find_first_not_of('0') == std::string::npos || text.starts_with('-')
                   ? fmt::format("'{}' is no number of steps; give 1 or more", text)
                   : std::string();
      });
  add_format(command, options->json);
  set_action(line, command, [&line, options] {
    options->arguments = line.arguments;
    return run_bench(*options);
  });
}

}  // namespace

void add_machine_commands(CommandLine& line) {
  add_doctor(line);
  add_bench(line);
}

}  // namespace colossal
