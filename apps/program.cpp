// How does a command line become a command, and how does every error end?
#include "program.hpp"

#include "core/color.hpp"
#include "core/error.hpp"
#include "help_formatter.hpp"
#include "train/commands.hpp"
#include "train/foreign.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <system_error>
#include <unistd.h>

namespace colossal {
namespace {

/// A stream that the caller has closed becomes /dev/null: otherwise the next file that is opened
/// takes its number, and messages or results land in it.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) {
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY));
    }
  }
}

/// Results that cannot be written are a failure, unless the reader only had enough (`| head`).
int results_lost(int error) {
  if (error == EPIPE) {
    return 0;
  }
  fmt::print(stderr,
             "error: cannot write the results to stdout: {}\n",
             std::generic_category().message(error));
  return static_cast<int>(ErrorKind::environment);
}

int flush_results(int code) {
  if (code != 0) {
    return code;
  }
  if (std::fflush(stdout) != 0) {
    return results_lost(errno);
  }
  return std::ferror(stdout) == 0 ? 0 : results_lost(EIO);  // a launcher's, some time ago
}

}  // namespace

void add_common(CommandLine& line) {
  line.app.allow_extras();
  line.app.formatter(std::make_shared<HelpFormatter>());
  line.app.set_version_flag("--version", "colossal-train " + build_id());
  line.app.add_flag("-q,--quiet", line.quiet, "warnings and errors only");
  line.app.add_flag("-v,--verbose", line.verbose, "debug messages too");
  line.app
      .add_option_function<std::string>(
          "--color",
          [&line](const std::string& when) {
            const ColorMode asked = when == "auto" ? ColorMode::automatic : ColorMode::always;
            set_color_mode(when == "never" || line.is_rank ? ColorMode::never : asked);
          },
          "colours in messages: auto (default; on terminals, unless NO_COLOR is set), always or "
          "never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  line.app.footer(
      "\nExample:\n  colossal-train train configs/tiny-cpu.yaml\n\n"
      "'colossal-train COMMAND --help' explains a command. Exit codes: 0 success, 1 bug, 2 command "
      "line, 3 configuration,\n4 data, 5 checkpoint, 6 memory, 7 numerics, 8 distributed, 9 "
      "environment, 75 stopped with a checkpoint (start again), 128 + n ended by signal n.");
}

int run_program(int argc,
                char** argv,
                const std::function<void(CommandLine&)>& define,
                const std::function<void(const Error&, bool)>& print) noexcept {
  fill_closed_streams();
  std::signal(SIGXFSZ, SIG_IGN);    // a file beyond `ulimit -f` is an error like a full disk
  std::optional<CommandLine> line;  // outlives an error: it says in which form people want it
  try {
    line.emplace();
    add_common(*line);
    define(*line);
    return flush_results(parse(*line, argc, argv) ? line->action() : 0);
  } catch (const std::exception& error) {
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) {  // of fmt::print
      return results_lost(system->code().value());
    }
    const Error known = to_error(error);
    std::fflush(stdout);
    print(known, line && line->json_diagnostics);
    return known.exit_code();
  }
}

}  // namespace colossal
