// Are spans recorded when asked for, and free when not?
#include "core/trace.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <thread>
#include <vector>

namespace trace = colossal::trace;
using trace::Phase;
using trace::Scope;

TEST_CASE("scopes are kept between start and stop, innermost first", "[trace]") {
  {
    const Scope before(Phase::data);
  }
  trace::start(false);
  {
    const Scope step(Phase::step);
    const Scope block(Phase::forward, 3, 1);
  }
  const trace::Recording recording = trace::stop();
  {
    const Scope after(Phase::data);
  }
  REQUIRE(recording.spans.size() == 2);
  const trace::Span& inner = recording.spans[0];
  const trace::Span& outer = recording.spans[1];
  CHECK(inner.phase == Phase::forward);
  CHECK(inner.block == 3);
  CHECK(inner.micro_batch == 1);
  CHECK(outer.phase == Phase::step);
  CHECK(outer.block == -1);
  CHECK(recording.begin <= outer.begin);
  CHECK(outer.begin <= inner.begin);
  CHECK(inner.begin <= inner.end);
  CHECK(inner.end <= outer.end);
  CHECK(outer.end <= recording.end);
  CHECK(recording.memory.empty());
  CHECK(trace::stop().spans.empty());  // nothing is told twice
}

TEST_CASE("a scope across an end of the recording is left out", "[trace]") {
  {
    const Scope early(Phase::hooks);
    trace::start(false);
  }
  {
    const Scope late(Phase::hooks);
    CHECK(trace::stop().spans.empty());
  }
  trace::start(false);
  trace::add({.phase = Phase::communication, .begin = 1, .end = trace::now()});  // of an older one
  CHECK(trace::stop().spans.empty());
}

TEST_CASE("starting again drops what was not fetched", "[trace]") {
  trace::start(true);
  {
    const Scope lost(Phase::data);
  }
  trace::start(false);
  {
    const Scope kept(Phase::eval);
  }
  const trace::Recording recording = trace::stop();
  REQUIRE(recording.spans.size() == 1);
  CHECK(recording.spans[0].phase == Phase::eval);
  CHECK(recording.memory.empty());
}

TEST_CASE("memory is sampled at both ends of a scope and sees what a process takes", "[trace]") {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::vector<char> taken;
  trace::start(true);
  {
    const Scope scope(Phase::optimizer);
    taken.assign(kBytes, 1);
  }
  const trace::Recording recording = trace::stop();
  REQUIRE(recording.memory.size() == 2);
  CHECK(recording.memory[0].time == recording.spans.at(0).begin);
  CHECK(recording.memory[1].time == recording.spans.at(0).end);
  CHECK(recording.memory[0].bytes > 0);
  CHECK(recording.memory[1].bytes - recording.memory[0].bytes >
        static_cast<std::int64_t>(kBytes) * 9 / 10);
}

TEST_CASE("threads record side by side under numbers of their own", "[trace]") {
  constexpr int kThreads = 4;
  constexpr int kSpans = 500;
  trace::start(false);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < kSpans; ++i) {
          const Scope scope(Phase::operation, i);
        }
      });
    }
  }
  const trace::Recording recording = trace::stop();
  CHECK(recording.thread == trace::thread_number());
  REQUIRE(recording.spans.size() == kThreads * kSpans);
  std::vector<std::uint32_t> numbers;
  for (const trace::Span& span : recording.spans) {
    numbers.push_back(span.thread);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  CHECK(numbers.size() == kThreads);
  CHECK(std::find(numbers.begin(), numbers.end(), recording.thread) == numbers.end());
}

TEST_CASE("a scope that nobody records costs nanoseconds", "[trace]") {
  constexpr int kScopes = 1'000'000;
  std::int64_t best = INT64_MAX;
  for (int round = 0; round < 5; ++round) {
    const std::int64_t begin = trace::now();
    for (int i = 0; i < kScopes; ++i) {
      const Scope scope(Phase::forward, i, 0);
    }
    best = std::min(best, trace::now() - begin);
  }
  // A step of the smallest example opens about 30 scopes in 5 ms: 0.1 % of it is 166 ns a scope.
  INFO(static_cast<double>(best) / kScopes << " ns a scope");
  CHECK(best < std::int64_t{100} * kScopes);
}

TEST_CASE("a thread knows its innermost scope, recorded or not", "[trace]") {
  CHECK_FALSE(trace::here().has_value());
  {
    const Scope step(Phase::step);
    {
      const Scope forward(Phase::forward, 3, 1);
      REQUIRE(trace::here().has_value());
      CHECK(trace::here()->phase == Phase::forward);
      CHECK(trace::here()->block == 3);
      CHECK(trace::here()->micro_batch == 1);
      bool elsewhere = true;
      std::thread([&] { elsewhere = trace::here().has_value(); }).join();
      CHECK_FALSE(elsewhere);
    }
    CHECK(trace::here()->phase == Phase::step);
    CHECK(trace::here()->block == -1);
  }
  CHECK_FALSE(trace::here().has_value());
}

TEST_CASE("every phase has a word of its own", "[trace]") {
  std::vector<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(Phase::operation); ++i) {
    words.push_back(trace::name(static_cast<Phase>(i)));
  }
  CHECK(std::find(words.begin(), words.end(), "unknown") == words.end());
  std::sort(words.begin(), words.end());
  CHECK(std::adjacent_find(words.begin(), words.end()) == words.end());
}
