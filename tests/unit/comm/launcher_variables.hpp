// How does a test pretend to be started by a launcher?
#pragma once

#include <map>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace colossal::test {

using Variables = std::map<std::string, std::string>;

/// A launcher environment of exactly these variables while alive; none after.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    clear();
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() { clear(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static bool is_launchers(std::string_view name) {
    for (const std::string_view whole : {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "COLOSSAL_LAUNCHER_PID"}) {
      if (name == whole) {
        return true;
      }
    }
    for (const std::string_view start : {"TORCHELASTIC_", "OMPI_", "PMI", "MPI_LOCAL", "SLURM_"}) {
      if (name.starts_with(start)) {
        return true;
      }
    }
    return false;
  }

  static void clear() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      names.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) {
      if (is_launchers(name)) {
        ::unsetenv(name.c_str());
      }
    }
  }
};

}  // namespace colossal::test
