// How does the output of N ranks become one readable stream?
#pragma once

#include "comm/detail/local_job.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// Rank 0's stdout passes unchanged, everything else goes to stderr. Lines of other ranks are
/// prefixed "[rank 2] ". A line that several ranks write within a moment appears once, prefixed
/// "[ranks 0-3] "; so lines of other ranks, and warnings and errors of rank 0, are held that long.
class LaunchOutput {
 public:
  using Clock = std::chrono::steady_clock;
  /// Where text goes: called with complete lines.
  using Writer = std::function<void(Stream stream, std::string_view text)>;

  LaunchOutput(int num_ranks, Writer writer);

  void line(int rank, Stream stream, std::string_view text, Clock::time_point now);
  /// Writes held lines whose moment is over.
  void flush(Clock::time_point now);
  /// Writes all held lines.
  void flush_all();
  /// The last stderr line of a rank that says "error", else its last stderr line; without prefix
  /// and newline.
  [[nodiscard]] const std::string& last_error(int rank) const;

 private:
  struct Held {
    std::string text;
    std::vector<int> ranks;
    Clock::time_point due;
  };

  [[nodiscard]] bool passes(int rank, Stream stream, std::string_view text) const;
  void remember(int rank, std::string_view text);
  void write(const Held& held) const;

  Writer writer_;
  std::deque<Held> held_;
  std::vector<std::string> last_error_;
};

/// Ranks as a short list: "0-3,7".
[[nodiscard]] std::string short_list(std::vector<int> ranks);

}  // namespace colossal::detail
