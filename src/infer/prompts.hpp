// Where do prompts come from? One from the command line, or one a line from a file descriptor,
// taken as they arrive.
#pragma once

#include <deque>
#include <optional>
#include <string>

namespace colossal {

/// A sequence of prompts that may still be growing.
class Prompts {
 public:
  /// One prompt, whatever it holds.
  explicit Prompts(std::string text);
  /// The lines of an open file or pipe, without their ends (\n or \r\n); empty ones are passed
  /// over. Not closed here.
  explicit Prompts(int descriptor);

  /// The next prompt. None: with `wait`, there is no further one; without, there is none yet.
  /// Errors: data "prompts-unreadable".
  [[nodiscard]] std::optional<std::string> next(bool wait);

 private:
  /// Reads once. False: nothing there now, or at the end.
  bool read_some(bool wait);
  void split();
  void add(std::string line);

  int descriptor_ = -1;  // -1: nothing more to read
  std::string rest_;     // an unfinished line
  std::deque<std::string> ready_;
};

}  // namespace colossal
