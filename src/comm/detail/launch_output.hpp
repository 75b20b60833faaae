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

/// Rank 0's stdout and stderr pass unchanged. Lines of other ranks go to stderr, prefixed "[rank 2]
/// "; a line that several ranks write within a moment appears once: "[ranks 1-3] ".
class LaunchOutput {
 public:
  using Clock = std::chrono::steady_clock;
  /// Where text goes: called with complete lines.
  using Writer = std::function<void(Stream stream, std::string_view text)>;

  LaunchOutput(int num_ranks, Writer writer);

  void line(int rank, Stream stream, std::string_view text, Clock::time_point now);
  /// Writes held lines that are older than the moment.
  void flush(Clock::time_point now);
  /// Writes all held lines.
  void flush_all();
  /// True while lines are held.
  [[nodiscard]] bool holds() const noexcept { return !held_.empty(); }
  /// The last stderr line of a rank that says "error", else its last stderr line; without prefix
  /// and newline.
  [[nodiscard]] const std::string& last_error(int rank) const;

 private:
  struct Held {
    std::string text;
    std::vector<int> ranks;
    Clock::time_point since;
  };

  void remember(int rank, std::string_view text);
  void write(const Held& held) const;

  Writer writer_;
  std::deque<Held> held_;
  std::vector<std::string> last_error_;
};

/// Ranks as a short list: "0-3,7".
[[nodiscard]] std::string short_list(std::vector<int> ranks);

}  // namespace colossal::detail
