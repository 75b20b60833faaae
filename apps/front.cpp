// Where does `colossal-train` start? Here: commands that only read configurations run at once, all
// others in the engine, which takes a moment to load LibTorch.
#include "commands.hpp"
#include "core/error.hpp"
#include "core/signals.hpp"
#include "program.hpp"
#include "train/late_errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace colossal {
namespace {

/// Words of the option of all commands that begins with `word`; 0 if it is none.
int common_words(std::string_view word) {
  const bool alone = word == "-q" || word == "-v" || word.starts_with("--color=");
  return alone ? 1 : word == "--color" ? 2 : 0;
}

/// Where the command is named.
int command_at(int argc, char** argv) {
  int at = 1;
  while (at < argc && common_words(argv[at]) > 0) {
    at += common_words(argv[at]);
  }
  return at;
}

/// Whether a run begins, which answers a signal by a checkpoint once it can.
bool is_run(int argc, char** argv) {
  const int at = command_at(argc, argv);
  const auto is = [](const char* word, std::string_view text) { return word == text; };
  return at < argc && is(argv[at], "train") &&
         std::none_of(argv + at, argv + argc, [&](char* word) { return is(word, "--dry-run"); });
}

/// Whether this program can do it alone. Anything unusual is left to the engine, which knows every
/// command.
bool served_here(int argc, char** argv) {
  const int at = command_at(argc, argv);
  const std::string_view command = at < argc ? argv[at] : "";
  for (int i = at; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--data")) {
      return false;
    }
  }
  return command == "validate" || command == "config" || command == "sweep";
}

/// Threads that wait for their next loop sleep after some 50 microseconds instead of milliseconds:
/// on a busy machine they would keep the cores from the threads that compute.
void shorten_spinning() {
  if (::getenv("OMP_WAIT_POLICY") == nullptr) {  // NOLINT(concurrency-mt-unsafe): one thread
    ::setenv("GOMP_SPINCOUNT", "20000", 0);      // NOLINT(concurrency-mt-unsafe): one thread
  }
}

/// LibTorch's own libraries cannot be loaded without a working directory, whatever the command is,
/// and relative names mean nothing: each says so in its own way.
void check_working_directory() {
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  check(!error,
        ErrorKind::environment,
        "no-working-directory",
        "the working directory cannot be used: {}; it was perhaps removed, and made anew, after "
        "this shell entered it\n  fix   change to a folder that exists: cd /",
        error.message());
}

/// Becomes the engine, which lies beside this program; same arguments, same process.
[[noreturn]] void become_engine(char** argv) {
  check_working_directory();
  shorten_spinning();
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path engine = self.parent_path() / kEngineName;
  ::execv(engine.c_str(), argv);
  fail(ErrorKind::environment,
       "engine-missing",
       "cannot start {}: {}\n  fix   build it: ninja -C build/cpu colossal-train",
       engine.string(),
       std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread
}

}  // namespace
}  // namespace colossal

int main(int argc, char** argv) {
  if (colossal::is_run(argc, argv)) {
    colossal::hold_run_signals();  // the engine takes a moment to load, too
  }
  const bool here = colossal::served_here(argc, argv);
  const auto define = [&](colossal::CommandLine& line) {
    if (!here) {
      colossal::become_engine(argv);
    }
    colossal::add_config_commands(line, {});
    colossal::add_sweep_commands(line);
  };
  return colossal::run_program(argc, argv, define, colossal::write_error);
}
