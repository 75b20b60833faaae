// What do both programs share: how a command line is run, and how every error ends?
#pragma once

#include "command_line.hpp"
#include "core/error.hpp"

#include <functional>

namespace colossal {

/// Version, -q, -v, --color, help and its footer: what `line` needs besides commands.
void add_common(CommandLine& line);

/// Defines the commands with `define`, reads argv, runs the chosen command and returns the exit
/// code. Results go to stdout, everything else to stderr. Never throws: every error becomes one
/// message, written by `print`; its second argument says whether as --diagnostics json.
[[nodiscard]] int run_program(int argc,
                              char** argv,
                              const std::function<void(CommandLine&)>& define,
                              const std::function<void(const Error&, bool)>& print) noexcept;

}  // namespace colossal
