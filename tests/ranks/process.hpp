// How does a test run another program, signal it and read what it wrote?
#pragma once

#include "support/temp_dir.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace colossal::test {

/// One running program; its stdout and stderr go to files. Killed by the destructor if it still
/// runs.
class Process {
 public:
  /// `environment`: "NAME=value" entries beside the inherited ones, without the variables of any
  /// launcher.
  Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Exit code, 128 + signal if it was killed, or nothing if it still runs after `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout);
  /// Waits until the program has written `text` to stdout or stderr `count` times; false after 60
  /// s.
  [[nodiscard]] bool wait_for_text(const std::string& text, int count) const;
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;

 private:
  TempDir folder_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

/// Number of non-overlapping occurrences.
[[nodiscard]] int count_of(const std::string& text, const std::string& part);

}  // namespace colossal::test
