// What can be said to the command that looks at this machine: doctor?
#include "commands.hpp"

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

}  // namespace

void add_machine_commands(CommandLine& line) {
  add_doctor(line);
}

}  // namespace colossal
