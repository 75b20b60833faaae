// How does a command line become a command, and how does every error end?
#include "program.hpp"

#include "core/error.hpp"
#include "train/commands.hpp"
#include "train/foreign.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>

namespace colossal {
namespace {

/// Results that cannot be written are a failure, unless the reader only had enough (`| head`).
int flush_results(int code) {
  if (std::fflush(stdout) == 0 || errno == EPIPE || code != 0) {
    return code;
  }
  std::perror("error: cannot write the results to stdout");
  return static_cast<int>(ErrorKind::environment);
}

}  // namespace

void add_common(CommandLine& line) {
  line.app.allow_extras();
  line.app.set_version_flag("--version", "colossal-train " + build_id());
  line.app.add_flag("-q,--quiet", line.quiet, "warnings and errors only");
  line.app.add_flag("-v,--verbose", line.verbose, "debug messages too");
  line.app.footer(
      "\nExample:\n  colossal-train train configs/tiny-cpu.yaml\n\n"
      "'colossal-train COMMAND --help' explains a command. Exit codes: 0 success, 1 bug, 2 command "
      "line, 3 configuration,\n4 data, 5 checkpoint, 6 memory, 7 numerics, 8 distributed, 9 "
      "environment, 130 and 143 stopped by a signal.");
}

int run_program(int argc,
                char** argv,
                const std::function<void(CommandLine&)>& define,
                void (*print)(const Error&)) noexcept {
  try {
    CommandLine line;
    add_common(line);
    define(line);
    return flush_results(parse(line, argc, argv) ? line.action() : 0);
  } catch (const std::exception& error) {
    const Error known = to_error(error);
    std::fflush(stdout);
    print(known);
    return known.exit_code();
  }
}

}  // namespace colossal
