// What can be said to the command that looks into checkpoints: inspect?
#include "checkpoint/checkpoint.hpp"
#include "commands.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

void add_inspect(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "inspect",
                                  "what a checkpoint holds, whether it is whole, how two differ",
                                  "colossal-train inspect runs/tiny-cpu --tensors --verify");
  struct Options {
    std::string path;
    std::string diff;
    InspectOptions inspect;
  };
  const auto options = std::make_shared<Options>();
  need(line,
       command,
       add_option(command, "PATH", options->path, "checkpoint folder or run directory", ""));
  command->add_flag("--tensors", options->inspect.tensors, "list every tensor");
  command->add_flag("--verify", options->inspect.verify, "read every byte and compare checksums");
  add_option(command, "--diff", options->diff, "compare with another checkpoint", "OTHER");
  add_format(command, options->inspect.json);
  set_action(line, command, [options] {
    if (!options->diff.empty()) {
      options->inspect.diff = options->diff;
    }
    fmt::print("{}", inspect(options->path, options->inspect));
    return 0;
  });
}

}  // namespace

void add_checkpoint_commands(CommandLine& line) {
  add_inspect(line);
}

}  // namespace colossal
