// How does a test run a script in a shell?
#pragma once

#include "e2e/program.hpp"

#include <cstdlib>

namespace colossal::test {

/// Runs a shell and returns what it printed; fails the test unless it succeeds.
inline std::string shell(const std::string& program, const std::string& script) {
  const TempDir folder;
  write_file(folder.path() / "script", script);
  const std::filesystem::path out = folder.path() / "out";
  const std::string command =
      program + " " + (folder.path() / "script").string() + " > " + out.string() + " 2>&1";
  const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
  INFO(read_file(out));
  REQUIRE(status == 0);
  return read_file(out);
}

}  // namespace colossal::test
