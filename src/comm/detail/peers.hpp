// What do ranks tell each other through the store? The first failure of the run, and every rank's
// beat.
#pragma once

#include "comm/detail/progress.hpp"
#include "comm/detail/store.hpp"
#include "comm/failure.hpp"

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal::detail {

/// Stands for the launcher where a rank is expected.
inline constexpr int kLauncherRank = -1;

/// The failure that ends the run, as the one who found it first has published it.
struct Failure {
  /// Who published it, and tells people about it.
  int reporter = 0;
  /// Root cause.
  int rank = 0;
  int exit_code = 0;
  std::string id;
  std::string text;
  /// The key at fault; empty if none is known.
  std::string key = {};
};

[[nodiscard]] std::string to_text(const Failure& failure);
[[nodiscard]] Failure parse_failure(std::string_view text);
/// What a peer says about it: "rank 3 failed: loss is nan [nonfinite-loss]".
[[nodiscard]] std::string sentence(const Failure& failure);

/// What all keys of one attempt of a job begin with.
[[nodiscard]] std::string store_prefix(int attempt);

/// Publishes a failure; the first one wins. Returns the winner.
Failure report_failure(Store& store, const Failure& failure);
/// The failure that ends the run, if any.
[[nodiscard]] std::optional<Failure> reported_failure(Store& store);

/// The failure with the last phase of every rank, as far as the store still tells.
[[nodiscard]] RunFailure with_phases(const Failure& failure, Store& store, int world_size);

/// Tells the listener of a process about the failure that ends it, once.
class FailureNotice {
 public:
  explicit FailureNotice(FailureListener listener) : listener_(std::move(listener)) {}
  /// Returns when the listener has finished, whichever thread called it.
  void tell(const RunFailure& failure);

 private:
  FailureListener listener_;
  std::once_flag once_;
};

/// Says that this rank has passed the last barrier, and waits until all have, or clearly never
/// will. Errors: comm "store-lost".
void leave_barrier(Store& store, int world_size);

/// The last word of a rank whose run has succeeded; the host of the store waits for that of all
/// others. A store that is lost by now is logged: nothing depends on it any more.
void say_closed(Store& store, int world_size) noexcept;

/// Last use of the store before an early exit. The host of the store waits, at most `patience`,
/// until the `others` have called this too: they could not read why the run ends otherwise.
void depart(Store& store, bool hosting, int others, std::chrono::milliseconds patience) noexcept;

void publish_beat(Store& store, int rank, const Beat& beat);
/// Last beats of ranks that have all published one.
[[nodiscard]] std::vector<Beat> read_beats(Store& store, const std::vector<int>& ranks);

}  // namespace colossal::detail
