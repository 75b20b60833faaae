// Which rank is to blame when a collective does not come back?
#include "comm/detail/session.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <thread>

namespace colossal::detail {
namespace {

void throw_if_reported(Store& store) {
  if (const auto failure = reported_failure(store)) {
    fail(ErrorKind::comm, "peer-failed", "{}", failure->text);
  }
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

std::string join_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

void Session::fail_timeout(const Collective& collective, const std::vector<int>& ranks) {
  throw_if_reported(*store);
  const std::vector<Beat> beats = read_beats(*store, ranks);
  fail(ErrorKind::comm,
       "collective-timeout",
       "{} #{} of group {} ({} bytes) did not finish within {} s on rank {}: {}; "
       "raise comm.timeout if that rank is only slow",
       collective.op,
       collective.sequence,
       collective.group,
       collective.bytes,
       seconds(timeouts.collective),
       launch.rank,
       blame(collective, ranks, beats));
}

void Session::fail_broken(const Collective& collective,
                          const std::vector<int>& ranks,
                          const std::string& reason) {
  const std::vector<Beat> before = read_beats(*store, ranks);
  const auto deadline = std::chrono::steady_clock::now() + timeouts.heartbeat * 5 / 2;
  while (std::chrono::steady_clock::now() < deadline) {
    throw_if_reported(*store);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::vector<Beat> after = read_beats(*store, ranks);
  std::vector<int> silent;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (after[i].count == before[i].count) {
      silent.push_back(ranks[i]);
    }
  }
  const std::string culprit = silent.empty()
                                  ? std::string("a connection is lost though every rank is alive")
                                  : fmt::format("{} died without a message", join_ranks(silent));
  fail(ErrorKind::comm,
       "peer-lost",
       "{}: {} #{} of group {} ({} bytes) broke on rank {}: {}",
       culprit,
       collective.op,
       collective.sequence,
       collective.group,
       collective.bytes,
       launch.rank,
       reason);
}

}  // namespace colossal::detail
