// Which rank is to blame when a collective does not come back?
#include "comm/detail/session.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <thread>

namespace colossal::detail {
namespace {

void throw_if_reported(Store& store) {
  if (const auto failure = reported_failure(store)) {
    fail(ErrorKind::comm, "peer-failed", "{}", sentence(*failure));
  }
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

/// What a collective that did not end in time is told as.
std::string timeout_text(const Collective& collective,
                         std::chrono::milliseconds timeout,
                         int rank,
                         const std::string& blamed) {
  return fmt::format(
      "{} #{} of group {} ({} bytes) did not finish within {} s on rank {}: {}\n"
      "  fix   raise parallel.comm.timeout if that rank is only slow",
      collective.op,
      collective.sequence,
      collective.group,
      collective.bytes,
      seconds(timeout),
      rank,
      blamed);
}

std::string join_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Failure Session::failure_of(const Error& error) const {
  int rank = launch.rank;
  if (error.id() == "store-lost") {
    rank = store_host();
  } else if (error.kind() == ErrorKind::comm) {
    rank = culprit.value_or(launch.rank);
  }
  return {launch.rank, rank, error.exit_code(), std::string(error.id()), error.what(), error.key()};
}

void Session::fail_timeout(const Collective& collective, const std::vector<int>& ranks) {
  explaining = true;
  throw_if_reported(*store);
  const Blame blamed = blame(collective, ranks, read_beats(*store, ranks));
  culprit = blamed.rank;
  fail(ErrorKind::comm,
       "collective-timeout",
       "{}",
       timeout_text(collective, timeouts.collective, launch.rank, blamed.text));
}

void Session::fail_broken(const Collective& collective,
                          const std::vector<int>& ranks,
                          const std::string& reason) {
  explaining = true;
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
  if (!silent.empty()) {
    culprit = silent.front();
  }
  const std::string cause = silent.empty()
                                ? std::string("a connection is lost though every rank is alive")
                                : fmt::format("{} died without a message", join_ranks(silent));
  fail(ErrorKind::comm,
       "peer-lost",
       "{}: {} #{} of group {} ({} bytes) broke on rank {}: {}",
       cause,
       collective.op,
       collective.sequence,
       collective.group,
       collective.bytes,
       launch.rank,
       reason);
}

std::optional<Failure> Session::device_failure(Store& connection) {
  const std::optional<TroubledWork> trouble = device_works.trouble(timeouts.collective);
  if (!trouble) {
    return std::nullopt;
  }
  const Collective& collective = trouble->work.collective;
  const Blame blamed =
      blame(collective, trouble->work.ranks, read_beats(connection, trouble->work.ranks));
  Failure failure{.reporter = launch.rank,
                  .rank = blamed.rank.value_or(launch.rank),
                  .exit_code = static_cast<int>(ErrorKind::comm),
                  .id = "collective-timeout",
                  .text = {}};
  if (trouble->broken) {
    failure.id = "peer-lost";
    failure.text = fmt::format(
        "{} #{} of group {} ({} bytes) broke on rank {}: NCCL reports an "
        "error of a peer or its connection; {}",
        collective.op,
        collective.sequence,
        collective.group,
        collective.bytes,
        launch.rank,
        blamed.text);
  } else {
    failure.text = timeout_text(collective, timeouts.collective, launch.rank, blamed.text);
  }
  return failure;
}

}  // namespace colossal::detail
