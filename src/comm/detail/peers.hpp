// What do ranks tell each other through the store? The first failure of the run, and every rank's
// beat.
#pragma once

#include "comm/detail/progress.hpp"
#include "comm/detail/store.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// The failure that ends the run.
struct Failure {
  /// The rank that failed or, for a lost or hanging peer, that noticed it.
  int rank = 0;
  int exit_code = 0;
  /// Complete sentence naming the culprit: "rank 3 failed: ...".
  std::string text;
};

[[nodiscard]] std::string to_text(const Failure& failure);
[[nodiscard]] Failure parse_failure(std::string_view text);

/// Publishes a failure; the first one wins. Returns the winner.
Failure report_failure(Store& store, const Failure& failure);
/// The failure that ends the run, if any.
[[nodiscard]] std::optional<Failure> reported_failure(Store& store);

/// Last use of the store before an early exit. The host of the store waits, at most `patience`,
/// until the `others` have called this too: they could not read why the run ends otherwise.
void depart(Store& store, bool hosting, int others, std::chrono::milliseconds patience) noexcept;

void publish_beat(Store& store, int rank, const Beat& beat);
/// Last beats of ranks that have all published one.
[[nodiscard]] std::vector<Beat> read_beats(Store& store, const std::vector<int>& ranks);

}  // namespace colossal::detail
