// Where does `colossal-train-engine` start? It knows every command; `colossal-train` becomes it
// when one needs LibTorch.
#include "comm/launch.hpp"
#include "commands.hpp"
#include "program.hpp"
#include "train/commands.hpp"
#include "train/startup.hpp"

#include <string>
#include <vector>

namespace colossal {
namespace {

void define(CommandLine& line) {
  line.is_rank = guard_child();
  add_run_commands(line);
  add_config_commands(line, check_data);
  add_sweep_commands(line);
  add_checkpoint_commands(line);
  add_dataset_commands(line);
  add_machine_commands(line);
  add_completion(line);
}

}  // namespace
}  // namespace colossal

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return colossal::run_program(
      argc, argv, colossal::define, [&](const colossal::Error& error, bool json) {
        colossal::print_error(error, json, arguments);
      });
}
