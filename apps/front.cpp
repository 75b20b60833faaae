// Where does `colossal-train` start? Here: commands that only read configurations run at once, all
// others in the engine, which takes a moment to load LibTorch.
#include "commands.hpp"
#include "core/error.hpp"
#include "program.hpp"
#include "train/foreign.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unistd.h>

namespace colossal {
namespace {

/// Whether this program can do it alone. Anything unusual is left to the engine, which knows every
/// command.
bool served_here(int argc, char** argv) {
  int at = 1;
  while (at < argc && (std::string_view(argv[at]) == "-q" || std::string_view(argv[at]) == "-v")) {
    ++at;
  }
  const std::string_view command = at < argc ? argv[at] : "";
  for (int i = at; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--data")) {
      return false;
    }
  }
  return command == "validate" || command == "config";
}

/// Becomes the engine, which lies beside this program; same arguments, same process.
[[noreturn]] void become_engine(char** argv) {
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
  const bool here = colossal::served_here(argc, argv);
  const auto define = [&](colossal::CommandLine& line) {
    if (!here) {
      colossal::become_engine(argv);
    }
    colossal::add_config_commands(line, {});
  };
  return colossal::run_program(argc, argv, define, [](const colossal::Error& error) {
    fmt::print(stderr, "{}", colossal::to_text(error));
  });
}
