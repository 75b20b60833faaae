// Which rank is blamed when a collective does not come back?
#include "comm/detail/session.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <memory>
#include <string>

using colossal::Error;
using colossal::ErrorKind;
using colossal::detail::Beat;
using colossal::detail::Collective;
using colossal::detail::kLauncherRank;
using colossal::detail::Session;
using colossal::detail::Store;
using namespace std::chrono_literals;

namespace {

const Collective kThird{"data", "all_reduce", 3, 4096};

/// Rank 0 of two, with a store of its own in which both have beaten once; rank 1 is in its second
/// collective.
std::unique_ptr<Session> session_of_two() {
  auto session = std::make_unique<Session>();
  session->launch.world_size = 2;
  session->timeouts.collective = 3s;
  session->timeouts.heartbeat = 20ms;
  session->store = Store::host({}, 10s);
  Beat beat{1, "step 4 forward", {}};
  beat.entered["data"] = {"all_reduce", 3};
  colossal::detail::publish_beat(*session->store, 0, beat);
  beat.entered["data"].sequence = 2;
  colossal::detail::publish_beat(*session->store, 1, beat);
  return session;
}

template <class Action>
std::string told_by(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.id()) + ": " + error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a time-out names who never entered", "[session]") {
  const auto session = session_of_two();
  const std::string told = told_by([&] { session->fail_timeout(kThird, {0, 1}); });
  INFO(told);
  CHECK(
      told.starts_with("collective-timeout: all_reduce #3 of group data (4096 bytes) did not "
                       "finish within 3 s on rank 0: rank 1 never entered"));
  CHECK(session->culprit == 1);
  CHECK(session->explaining);
}

TEST_CASE("a broken connection names whose heart has stopped", "[session]") {
  const auto session = session_of_two();
  const std::string told = told_by([&] { session->fail_broken(kThird, {1}, "reset by peer"); });
  INFO(told);
  CHECK(told.starts_with("peer-lost: rank 1 died without a message: all_reduce #3 of group data"));
  CHECK(told.ends_with("broke on rank 0: reset by peer"));
  CHECK(session->culprit == 1);
}

TEST_CASE("a failure that was reported explains both", "[session]") {
  const auto session = session_of_two();
  colossal::detail::report_failure(*session->store, {1, 1, 7, "nonfinite-loss", "loss is nan"});
  const std::string expected = "peer-failed: rank 1 failed: loss is nan [nonfinite-loss]";
  CHECK(told_by([&] { session->fail_timeout(kThird, {0, 1}); }) == expected);
  CHECK(told_by([&] { session->fail_broken(kThird, {0, 1}, "reset by peer"); }) == expected);
}

TEST_CASE("a rank blames itself for its own errors, and the host for a lost store", "[session]") {
  const auto session = session_of_two();
  const auto blamed = [&](ErrorKind kind, const char* id) {
    return session->failure_of(Error(kind, id, "text", std::source_location::current())).rank;
  };
  session->launch.rank = 1;
  session->culprit = 5;
  CHECK(blamed(ErrorKind::numerics, "nonfinite-loss") == 1);
  CHECK(blamed(ErrorKind::comm, "collective-timeout") == 5);
  CHECK(blamed(ErrorKind::comm, "store-lost") == 0);
  session->launch.store_is_hosted = true;
  CHECK(blamed(ErrorKind::comm, "store-lost") == kLauncherRank);
}
