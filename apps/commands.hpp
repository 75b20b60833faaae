// Which families of commands exist? One file each; a new command is one function there and one line
// in its family.
#pragma once

#include "command_line.hpp"

namespace colossal {

/// train, plan, eval.
void add_run_commands(CommandLine& line);
/// validate and `config ...`.
void add_config_commands(CommandLine& line);
/// inspect, generate.
void add_checkpoint_commands(CommandLine& line);
/// dataset prepare, dataset inspect.
void add_dataset_commands(CommandLine& line);

}  // namespace colossal
