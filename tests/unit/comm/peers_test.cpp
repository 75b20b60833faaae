// Do beats and failures survive the store, and is the right rank blamed?
#include "comm/detail/peers.hpp"

#include "comm/detail/watchdog.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using colossal::detail::Beat;
using colossal::detail::Blame;
using colossal::detail::blame;
using colossal::detail::Collective;
using colossal::detail::Failure;
using colossal::detail::Progress;
using colossal::detail::Store;
using namespace std::chrono_literals;

namespace {

Beat beat_of(std::string phase, std::string op, std::int64_t sequence) {
  Beat beat;
  beat.count = 1;
  beat.phase = std::move(phase);
  beat.entered["data"] = {std::move(op), sequence};
  return beat;
}

const Collective kTwelfth{"data", "all_reduce", 12, 4096};

}  // namespace

TEST_CASE("a beat is read as it was written", "[peers]") {
  Progress progress;
  progress.set_phase("step 3 forward");
  progress.enter({"data", "all_reduce", 7, 16});
  progress.enter({"a group", "barrier", 2, 0});
  static_cast<void>(progress.next_beat());
  const Beat beat = colossal::detail::parse_beat(colossal::detail::to_text(progress.next_beat()));
  CHECK(beat.count == 2);
  CHECK(beat.time > 1'700'000'000);
  CHECK(beat.phase == "step 3 forward");
  CHECK(beat.entered.at("data").op == "all_reduce");
  CHECK(beat.entered.at("data").sequence == 7);
  CHECK(beat.entered.at("a group").sequence == 2);
}

TEST_CASE("a beat without phase or groups, or a damaged one, is empty", "[peers]") {
  const Beat empty = colossal::detail::parse_beat(colossal::detail::to_text(Beat{4, "", {}}));
  CHECK(empty.count == 4);
  CHECK(empty.phase.empty());
  CHECK(empty.entered.empty());
  CHECK(colossal::detail::parse_beat("").count == 0);
}

TEST_CASE("ranks that never entered are blamed, with their phase", "[peers]") {
  const Blame blamed = blame(kTwelfth,
                             {0, 2, 5},
                             {beat_of("step 4", "all_reduce", 12),
                              beat_of("data loading", "all_reduce", 11),
                              Beat{1, "starting", {}}});
  CHECK(blamed.rank == 2);
  CHECK(blamed.text ==
        "rank 2 never entered all_reduce #12 of group data (it is in 'data loading'); "
        "rank 5 never entered all_reduce #12 of group data (it is in 'starting')");
}

TEST_CASE("a rank that was stopped was said to be in a phase long past", "[peers]") {
  Beat running = beat_of("step 40 forward", "all_reduce", 12);
  running.time = 1'000'000'012.3;
  Beat stopped = beat_of("waiting for all ranks", "all_reduce", 11);
  stopped.time = 1'000'000'000.2;
  Beat late = beat_of("step 40 data", "all_reduce", 11);
  late.time = 1'000'000'010.5;  // one heartbeat behind
  CHECK(
      blame(kTwelfth, {0, 1, 2}, {running, stopped, late}).text ==
      "rank 1 never entered all_reduce #12 of group data (silent for 12 s, last heard in 'waiting "
      "for all ranks'); rank 2 never entered all_reduce #12 of group data (it is in 'step 40 "
      "data')");
  const auto store = Store::host({}, 10s);
  colossal::detail::publish_beat(*store, 0, running);
  colossal::detail::publish_beat(*store, 1, stopped);
  const Failure failure{0, 1, 8, "collective-timeout", "rank 1 hangs"};
  CHECK(colossal::detail::with_phases(failure, *store, 3).phases ==
        std::vector<std::string>{
            "step 40 forward", "waiting for all ranks (its last word, 12 s old)", ""});
}

TEST_CASE("a rank that entered another collective is blamed", "[peers]") {
  const Blame blamed =
      blame(kTwelfth, {0, 1}, {beat_of("", "all_reduce", 12), beat_of("", "broadcast", 12)});
  CHECK(blamed.rank == 1);
  CHECK(blamed.text == "rank 1 entered broadcast #12 instead of all_reduce #12 of group data");
}

TEST_CASE("nobody is blamed when all have entered", "[peers]") {
  const Blame blamed =
      blame(kTwelfth, {0, 1}, {beat_of("", "all_reduce", 12), beat_of("", "barrier", 13)});
  CHECK_FALSE(blamed.rank.has_value());
  CHECK(blamed.text.starts_with("every rank has entered it"));
}

TEST_CASE("the first reported failure wins", "[peers]") {
  const auto store = Store::host({}, 10s);
  CHECK_FALSE(colossal::detail::reported_failure(*store).has_value());
  const Failure first{3, 3, 7, "nonfinite-loss", "loss is nan\nwhile in step 5"};
  CHECK(colossal::detail::report_failure(*store, first).rank == 3);
  CHECK(colossal::detail::report_failure(*store, {1, 2, 8, "peer-lost", "gone"}).rank == 3);
  const auto reported = colossal::detail::reported_failure(*store);
  REQUIRE(reported);
  CHECK(reported->reporter == 3);
  CHECK(reported->exit_code == 7);
  CHECK(reported->id == "nonfinite-loss");
  CHECK(reported->text == first.text);
  CHECK(reported->key.empty());
}

TEST_CASE("a failure keeps the key that is at fault on its way", "[peers]") {
  const auto store = Store::host({}, 10s);
  const Failure first{1, 1, 3, "output-exists", "- is a folder\n  fix   x", "run.output_dir"};
  CHECK(colossal::detail::report_failure(*store, first).key == "run.output_dir");
  const auto reported = colossal::detail::reported_failure(*store);
  REQUIRE(reported);
  CHECK(reported->key == "run.output_dir");
  CHECK(reported->text == first.text);
  CHECK(colossal::detail::with_phases(*reported, *store, 2).key == "run.output_dir");
  const Failure none = colossal::detail::parse_failure(
      colossal::detail::to_text(Failure{0, 0, 8, "peer-lost", "- gone"}));
  CHECK(none.key.empty());
  CHECK(none.text == "- gone");
}

TEST_CASE("peers name the rank that failed, unless its message does", "[peers]") {
  using colossal::detail::kLauncherRank;
  using colossal::detail::sentence;
  CHECK(sentence({3, 3, 7, "nonfinite-loss", "loss is nan\n  fix   x"}) ==
        "rank 3 failed: loss is nan [nonfinite-loss]\n  fix   x");
  CHECK(sentence({0, 2, 8, "peer-lost", "rank 2 is lost"}) == "rank 2 is lost [peer-lost]");
  CHECK(sentence({kLauncherRank, 1, 137, "peer-lost", "rank 1 was killed"}) ==
        "rank 1 was killed [peer-lost]");
}

TEST_CASE("a failure is told with what each rank was last doing", "[peers]") {
  const auto store = Store::host({}, 10s);
  colossal::detail::publish_beat(*store, 1, Beat{1, "step 4 forward", {}});
  const Failure failure{0, 2, 8, "peer-lost", "rank 2 is lost"};
  const colossal::RunFailure told = colossal::detail::with_phases(failure, *store, 3);
  CHECK(told.rank == 2);
  CHECK(told.exit_code == 8);
  CHECK(told.message == "rank 2 is lost");
  CHECK(told.phases == std::vector<std::string>{"", "step 4 forward", ""});
}

TEST_CASE("a listener hears of one failure, once", "[peers]") {
  std::vector<std::string> heard;
  colossal::detail::FailureNotice notice(
      [&](const colossal::RunFailure& failure) { heard.push_back(failure.id); });
  notice.tell({0, 8, "first", "", {}});
  notice.tell({0, 8, "second", "", {}});
  CHECK(heard == std::vector<std::string>{"first"});
  colossal::detail::FailureNotice clumsy(
      [](const colossal::RunFailure&) { throw std::runtime_error("disk full"); });
  CHECK_NOTHROW(clumsy.tell({0, 8, "first", "", {}}));  // the process must still leave
  colossal::detail::FailureNotice deaf{colossal::FailureListener()};
  CHECK_NOTHROW(deaf.tell({0, 8, "first", "", {}}));
}

TEST_CASE("a store that was lost after the last barrier failed a finished run", "[peers]") {
  auto server = Store::host({}, 10s);
  const auto store = Store::join(server->endpoint(), 10s);
  colossal::detail::leave_barrier(*store, 1);
  server.reset();
  CHECK_NOTHROW(colossal::detail::say_closed(*store, 2));
  CHECK_THROWS_AS(colossal::detail::leave_barrier(*store, 2), colossal::Error);  // still needed
}

TEST_CASE("ranks wait for each other after the last barrier, the host to the end", "[peers]") {
  const auto server = Store::host({}, 10s);
  const auto store = Store::join(server->endpoint(), 10s);
  std::atomic<int> num_done{0};
  std::thread host([&] {
    colossal::detail::leave_barrier(*server, 2);
    ++num_done;
    colossal::detail::say_closed(*server, 2);
    ++num_done;
  });
  std::this_thread::sleep_for(50ms);
  CHECK(num_done == 0);
  colossal::detail::leave_barrier(*store, 2);
  std::this_thread::sleep_for(50ms);
  CHECK(num_done == 1);
  colossal::detail::say_closed(*store, 2);
  host.join();
  CHECK(num_done == 2);
}

TEST_CASE("a watchdog was joined twice when closing failed in between", "[peers]") {
  const auto server = Store::host({}, 10s);
  Progress progress;
  colossal::detail::publish_beat(*server, 0, progress.next_beat());
  colossal::detail::publish_beat(*server, 1, Beat{1, "", {}});
  colossal::detail::FailureNotice notice{colossal::FailureListener()};
  colossal::detail::Watchdog watchdog(
      Store::join(server->endpoint(), 10s), {.rank = 0, .size = 2}, progress, notice);
  watchdog.stop();
  CHECK_NOTHROW(watchdog.stop());
}

TEST_CASE("a look that was asked for during another one was answered by that one", "[peers]") {
  const auto server = Store::host({}, 10s);
  Progress progress;
  colossal::detail::publish_beat(*server, 0, progress.next_beat());
  colossal::detail::publish_beat(*server, 1, Beat{1, "", {}});
  colossal::detail::FailureNotice notice{colossal::FailureListener()};
  std::atomic<int> begun = 0;
  std::atomic<bool> held = true;
  const auto inspect = [&](Store&) -> std::optional<Failure> {
    ++begun;
    while (held) {
      std::this_thread::sleep_for(1ms);
    }
    return {};
  };
  colossal::detail::Watchdog watchdog(Store::join(server->endpoint(), 10s),
                                      {.rank = 0, .size = 2, .interval = 1h, .inspect = inspect},
                                      progress,
                                      notice);
  std::thread first([&] { watchdog.look_now(10s); });
  while (begun == 0) {
    std::this_thread::sleep_for(1ms);
  }
  std::atomic<bool> asks = false;
  std::thread second([&] {
    asks = true;
    watchdog.look_now(10s);
  });
  while (!asks) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(20ms);  // it has asked by now
  held = false;
  second.join();
  CHECK(begun == 2);
  first.join();
  watchdog.stop();
}

TEST_CASE("the store's host leaves after the others have heard", "[peers]") {
  const auto store = Store::host({}, 10s);
  colossal::detail::depart(*store, false, 1, 0ms);
  const auto start = std::chrono::steady_clock::now();
  colossal::detail::depart(*store, true, 1, 10s);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  colossal::detail::depart(*store, true, 2, 30ms);  // one never answers
}
