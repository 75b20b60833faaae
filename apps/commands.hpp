// Which families of commands exist? One file each; a new command is one function there and one line
// in its family.
#pragma once

#include "command_line.hpp"
#include "train/commands_config.hpp"

namespace colossal {

/// File name of the program that runs the commands which need LibTorch.
inline constexpr const char* kEngineName = "colossal-train-engine";

/// train, plan, eval.
void add_run_commands(CommandLine& line);
/// validate and `config ...`; `check_data` serves `validate --data`.
void add_config_commands(CommandLine& line, DataCheck check_data);
/// `sweep ...`.
void add_sweep_commands(CommandLine& line);
/// inspect, generate, export, import.
void add_checkpoint_commands(CommandLine& line);
/// dataset prepare, dataset inspect.
void add_dataset_commands(CommandLine& line);
/// completion: of all commands that `line` has when it runs.
void add_completion(CommandLine& line);
/// doctor.
void add_machine_commands(CommandLine& line);

}  // namespace colossal
