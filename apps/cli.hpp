// What does the command line of colossal-train look like, and which command does it run?
#pragma once

namespace colossal {

/// Parses the command line, runs its command and returns the exit code. Results go to stdout,
/// everything else to stderr. Never throws: every error becomes one message on stderr.
[[nodiscard]] int run_cli(int argc, char** argv) noexcept;

}  // namespace colossal
