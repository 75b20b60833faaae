// Is a measurement the median of enough samples, whatever a call takes?
#include "core/error.hpp"
#include "support/catch.hpp"
#include "train/bench/timing.hpp"

#include <cmath>
#include <random>

namespace colossal {
namespace {

/// A device on which time passes only by calls, each of which takes what it is told.
class FakeTimer : public DeviceTimer {
 public:
  void start() override { begin_ = now; }
  [[nodiscard]] double stop() override {
    ++stretches;
    return now - begin_;
  }

  double now = 0;
  int stretches = 0;

 private:
  double begin_ = 0;
};

/// Measures calls of `seconds` each; counts them in `calls`.
Timing measure_calls(double seconds, int& calls, Sampling sampling = {}) {
  FakeTimer timer;
  return measure(
      timer,
      [&] {
        ++calls;
        timer.now += seconds;
      },
      sampling);
}

TEST_CASE("the middle of samples is their median, in whatever order they came", "[bench]") {
  CHECK(summarize({3, 1, 2}).median == 2);
  CHECK(summarize({4, 1, 3, 2}).median == 2.5);
  CHECK(summarize({3, 1, 2}).least == 1);
  CHECK(summarize({7}).median == 7);
  CHECK(summarize({7}).spread == 0);
  CHECK(summarize({7}).samples == 1);
}

TEST_CASE("the spread is the distance of the quartiles, which one outlier does not move",
          "[bench]") {
  CHECK(summarize({1, 2, 3, 4, 5}).spread == Approx((4.0 - 2.0) / 3.0));
  CHECK(summarize({1, 2, 3, 4, 500}).spread == Approx((4.0 - 2.0) / 3.0));
  CHECK(summarize({2, 2, 2, 2}).spread == 0);
  CHECK(summarize({0, 0}).spread == 0);  // a clock that did not move
}

TEST_CASE("a measurement without samples is a mistake of the program", "[bench]") {
  try {
    static_cast<void>(summarize({}));
    FAIL("nothing was summarized");
  } catch (const Error& error) {
    CHECK(error.id() == "no-samples");
    CHECK(error.kind() == ErrorKind::internal);
  }
}

TEST_CASE("statistics do not depend on the order of samples, and scale with them", "[bench]") {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> draw(0.1, 10);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> samples(static_cast<std::size_t>(1 + round));
    for (double& sample : samples) {
      sample = draw(random);
    }
    const Timing first = summarize(samples);
    std::vector<double> mixed = samples;
    std::shuffle(mixed.begin(), mixed.end(), random);
    CHECK(summarize(mixed).median == first.median);
    CHECK(summarize(mixed).spread == first.spread);
    CHECK(first.least <= first.median);
    for (double& sample : mixed) {
      sample *= 8;
    }
    CHECK(summarize(mixed).median == 8 * first.median);
    CHECK(summarize(mixed).spread == Approx(first.spread));
  }
}

TEST_CASE("short calls are repeated until a sample takes long enough", "[bench]") {
  int calls = 0;
  const Timing timing = measure_calls(1e-5, calls, {.sample_seconds = 1e-3, .total_seconds = 1e-2});
  CHECK(timing.median == Approx(1e-5));
  CHECK(timing.calls == Approx(100).margin(1));
  CHECK(timing.samples == Approx(10).margin(1));
  CHECK(calls == 2 + timing.calls * timing.samples);
}

TEST_CASE("a long call is sampled three times, a call in no time not for ever", "[bench]") {
  int calls = 0;
  const Timing slow = measure_calls(100, calls);
  CHECK(slow.samples == 3);
  CHECK(slow.calls == 1);
  CHECK(slow.median == 100);
  CHECK(calls == 2 + 3);
  calls = 0;
  const Timing fast = measure_calls(0, calls);
  CHECK(fast.samples == 30);
  CHECK(fast.median == 0);
  CHECK(calls <= 2 + 30 * 10'000);
}

TEST_CASE("the first calls are not counted", "[bench]") {
  FakeTimer timer;
  int calls = 0;
  const auto cold = [&] { timer.now += ++calls == 1 ? 1000 : 1; };
  CHECK(measure(timer, cold).median == 1);
}

TEST_CASE("ranks repeat equally often, by the seconds they agree on", "[bench]") {
  int asked = 0;
  Sampling sampling{.sample_seconds = 1, .total_seconds = 5};
  sampling.agree = [&](double seconds) {
    ++asked;
    CHECK(seconds == Approx(0.01));
    return 0.5;  // another rank was slower
  };
  int calls = 0;
  const Timing timing = measure_calls(0.01, calls, sampling);
  CHECK(asked == 1);
  CHECK(timing.calls == 2);
  CHECK(timing.samples == 5);
  CHECK(timing.median == Approx(0.01));  // what this rank saw
}

}  // namespace
}  // namespace colossal
