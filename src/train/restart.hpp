// When is a run whose ranks have failed started again? The rules of --max-restarts.
#pragma once

#include "comm/launch.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// Whether to start again, for how long to wait before, and why, as people are told.
struct RestartDecision {
  std::optional<std::chrono::milliseconds> wait;  ///< unset: not again
  std::string text;                               ///< empty: nothing to tell
};

/// One launcher's memory of its restarts. Ranks that were lost or killed are started again; every
/// other failure would only happen again.
class RestartPolicy {
 public:
  /// The k-th restart (from 0) waits first_wait * 2^k, but k no more than 12 and 20 days at most.
  RestartPolicy(int max_restarts, std::chrono::milliseconds first_wait)
      : max_restarts_(max_restarts), first_wait_(first_wait) {}

  /// Decides after a failure and counts a restart. `newest`: step of the newest complete
  /// checkpoint; without a newer one than at the last restart, the run would fail for ever.
  /// `is_end`: nothing can go on from it.
  [[nodiscard]] RestartDecision decide(const LaunchOutcome& outcome,
                                       std::optional<std::int64_t> newest,
                                       bool is_end = false);

 private:
  int max_restarts_;
  std::chrono::milliseconds first_wait_;
  int num_restarts_ = 0;
  std::int64_t last_step_ = -1;  ///< newest checkpoint at the last restart
};

/// Step of the newest complete checkpoint of a run directory; nothing if there is none or the
/// folder cannot be read.
[[nodiscard]] std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& run);

/// Whether that checkpoint holds weights alone of a later step than 0, which no start goes on from.
[[nodiscard]] bool newest_is_end(const std::filesystem::path& run);

/// A command line of `train` with one more option, which no "--" makes a mere word.
[[nodiscard]] std::vector<std::string> with_option(std::vector<std::string> arguments,
                                                   const std::string& option);

/// The command line of ranks that continue what those of `arguments` have begun: from the newest
/// checkpoint of the run, or, if it `has_saved` none, from where they began.
[[nodiscard]] std::vector<std::string> to_resume(const std::vector<std::string>& arguments,
                                                 bool has_saved);

}  // namespace colossal
