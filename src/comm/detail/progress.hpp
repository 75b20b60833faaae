// What is a rank doing, in a form that its peers can quote?
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// One collective as its messages name it: "all_reduce #12 of group data".
struct Collective {
  std::string group;
  std::string op;
  std::int64_t sequence = 0;
  std::int64_t bytes = 0;
};

/// What a rank last said about itself.
struct Beat {
  struct Entered {
    std::string op;
    std::int64_t sequence = 0;
  };
  std::int64_t count = 0;
  std::string phase;
  /// The last collective it entered, by group name (a rank is in one group of each name).
  std::map<std::string, Entered, std::less<>> entered;
  double time = 0;  ///< unix seconds, by the clock of its machine
};

/// By how many seconds each rank's last word is older than the newest of all; 0 for one of them
/// that is not older than beats need, or has not spoken.
[[nodiscard]] std::vector<double> silences(const std::vector<Beat>& beats);

[[nodiscard]] std::string to_text(const Beat& beat);
/// Inverse of to_text(); an empty or damaged text gives an empty beat.
[[nodiscard]] Beat parse_beat(std::string_view text);

/// This rank's beat, written by the main thread and read by the watchdog.
class Progress {
 public:
  void set_phase(std::string_view phase);
  void enter(const Collective& collective);
  /// The current beat, its count raised by one.
  [[nodiscard]] Beat next_beat();

 private:
  std::mutex mutex_;
  Beat beat_;
};

/// Who explains why a collective did not finish.
struct Blame {
  std::string text;
  /// The first rank to blame; none if all have entered.
  std::optional<int> rank;
};

/// The ranks that never entered `collective`, or entered another one. ranks[i] said beats[i].
[[nodiscard]] Blame blame(const Collective& collective,
                          const std::vector<int>& ranks,
                          const std::vector<Beat>& beats);

}  // namespace colossal::detail
