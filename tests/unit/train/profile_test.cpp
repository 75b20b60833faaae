// Are traces what viewers expect, and do the shares of the table add up?
#include "train/profile.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

using trace::Phase;
using trace::Recording;

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMs = 1'000'000;

/// Two blocks of one step, with collectives that overlap, on a clock that starts at one second.
Recording example() {
  constexpr std::int64_t kStart = 1'000 * kMs;
  Recording recording;
  recording.begin = kStart;
  recording.end = kStart + 100 * kMs;
  recording.thread = 5;
  const auto add = [&](Phase phase, std::int64_t from, std::int64_t to) -> trace::Span& {
    return recording.spans.emplace_back(trace::Span{
        .phase = phase, .begin = kStart + from * kMs, .end = kStart + to * kMs, .thread = 5});
  };
  add(Phase::data, 0, 10);
  trace::Span& operation = add(Phase::operation, 12, 18);
  operation.text = "aten::mm \"quoted\"";
  trace::Span& forward = add(Phase::forward, 10, 30);
  forward.block = 3;
  forward.micro_batch = 1;
  add(Phase::backward, 30, 60);
  add(Phase::reduce, 60, 70);
  add(Phase::step, 0, 80);
  add(Phase::checkpoint, 82, 90);
  add(Phase::hooks, 80, 95);
  for (const auto& [from, to] : {std::pair{40, 65}, {50, 68}, {66, 69}}) {
    trace::Span& collective = add(Phase::communication, from, to);
    collective.thread = 9;
    collective.text = "all_reduce data";
    collective.bytes = 1024;
  }
  trace::Span& loader = add(Phase::operation, 0, 50);
  loader.thread = 7;
  loader.text = "aten::copy_";
  recording.memory = {{kStart, 1 << 20}, {kStart + 50 * kMs, 3 << 20}};
  return recording;
}

std::vector<Json> events(const Json& trace, const std::string& kind) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == kind) {
      found.push_back(event);
    }
  }
  return found;
}

double seconds(const PhaseTimes& times, Phase phase) {
  return times.seconds.at(static_cast<std::size_t>(phase));
}

}  // namespace

TEST_CASE("a trace has one complete event for every span", "[profile]") {
  const Json trace = Json::parse(to_chrome_trace(example(), 2));
  CHECK(trace.at("displayTimeUnit") == "ms");
  const std::vector<Json> complete = events(trace, "X");
  REQUIRE(complete.size() == example().spans.size());
  for (const Json& event : complete) {
    CHECK(event.at("pid") == 2);
    CHECK(event.at("ts").get<double>() >= 1e6);
    CHECK(event.at("dur").get<double>() > 0);
    CHECK(event.at("tid").is_number_unsigned());
  }
  const auto forward = std::find_if(
      complete.begin(), complete.end(), [](const Json& e) { return e.at("cat") == "forward"; });
  REQUIRE(forward != complete.end());
  CHECK(forward->at("name") == "forward block 3 mb 1");
  CHECK(forward->at("ts").get<double>() == 1'010'000.0);
  CHECK(forward->at("dur").get<double>() == 20'000.0);
  CHECK(to_chrome_trace(example(), 2).find(R"(aten::mm \"quoted\")") != std::string::npos);
}

TEST_CASE("collectives under way together get tracks of their own", "[profile]") {
  const Json trace = Json::parse(to_chrome_trace(example(), 0));
  std::vector<int> tracks;
  for (const Json& event : events(trace, "X")) {
    if (event.at("cat") == "communication") {
      tracks.push_back(event.at("tid").get<int>());
      CHECK(event.at("args").at("bytes") == 1024);
    }
  }
  CHECK(tracks == std::vector<int>{1000, 1001, 1000});  // the third fits behind the first
}

TEST_CASE("tracks and the process have names", "[profile]") {
  const Json trace = Json::parse(to_chrome_trace(example(), 3));
  std::map<int, std::string> tracks;
  for (const Json& event : events(trace, "M")) {
    if (event.at("name") == "process_name") {
      CHECK(event.at("args").at("name") == "rank 3");
    } else if (event.at("name") == "thread_name") {
      tracks[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
    }
  }
  CHECK(tracks ==
        std::map<int, std::string>{
            {0, "training"}, {1, "thread 1"}, {1000, "communication"}, {1001, "communication"}});
}

TEST_CASE("memory is a counter track", "[profile]") {
  const std::vector<Json> counters = events(Json::parse(to_chrome_trace(example(), 0)), "C");
  REQUIRE(counters.size() == 2);
  CHECK(counters[0].at("args").at("bytes") == 1 << 20);
  CHECK(counters[1].at("args").at("bytes") == 3 << 20);
  CHECK(counters[1].at("ts").get<double>() == 1'050'000.0);
}

TEST_CASE("a phase's time leaves out the phases inside it", "[profile]") {
  const PhaseTimes times = phase_times(example());
  CHECK(times.total == Approx(0.1));
  CHECK(seconds(times, Phase::data) == Approx(0.010));
  CHECK(seconds(times, Phase::forward) == Approx(0.020));
  CHECK(seconds(times, Phase::backward) == Approx(0.030));
  CHECK(seconds(times, Phase::reduce) == Approx(0.010));
  CHECK(seconds(times, Phase::step) == Approx(0.010));
  CHECK(seconds(times, Phase::checkpoint) == Approx(0.008));
  CHECK(seconds(times, Phase::hooks) == Approx(0.007));
  CHECK(seconds(times, Phase::optimizer) == 0);
  CHECK(times.communication == Approx(0.029));  // 40 to 69, counted once
  CHECK(times.lowest_memory == 1 << 20);
  CHECK(times.highest_memory == 3 << 20);
}

TEST_CASE("phase times survive the way to rank 0", "[profile]") {
  const PhaseTimes times = phase_times(example());
  const PhaseTimes back = parse_phase_times(to_text(times));
  CHECK(back.seconds == times.seconds);
  CHECK(back.total == times.total);
  CHECK(back.communication == times.communication);
  CHECK(back.highest_memory == times.highest_memory);
  try {
    static_cast<void>(parse_phase_times("{}"));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "profile-text");
  }
}

TEST_CASE("the table shows means, shares and the slowest rank", "[profile]") {
  PhaseTimes slow = phase_times(example());
  slow.seconds[static_cast<std::size_t>(Phase::backward)] += 0.020;
  slow.total += 0.020;
  const std::string table = phase_table({phase_times(example()), slow}, 5, 2);
  INFO(table);
  CHECK(table.find("profile   steps 5 to 6: 55.00 ms a step") == 0);
  CHECK(table.find("  backward           20.00     36.4%     25.00 on rank 1") !=
        std::string::npos);
  CHECK(table.find("  forward            10.00     18.2%     10.00 on rank 0") !=
        std::string::npos);
  CHECK(table.find("  communication      14.50     26.4%") != std::string::npos);
  CHECK(table.find("optimizer") == std::string::npos);  // took no time
  CHECK(table.find("resident memory 0.0 GiB to 0.0 GiB") != std::string::npos);
  double shares = 0;  // of all rows but communication, which is beside them
  for (std::size_t at = table.find('%'); at < table.find("communication");
       at = table.find('%', at + 1)) {
    shares += std::stod(table.substr(at - 6, 6));
  }
  CHECK(shares == Approx(100).margin(0.5));
}

TEST_CASE("an empty recording has a table too", "[profile]") {
  const std::string table = phase_table({PhaseTimes{}}, 1, 1);
  CHECK(table.find("steps 1 to 1: 0.00 ms a step") != std::string::npos);
  CHECK(Json::parse(to_chrome_trace(Recording{}, 0)).at("traceEvents").size() == 2);
}

}  // namespace colossal::test
