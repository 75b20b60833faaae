// Do gauges count right when several threads use them at once?
#include "memory/gauge.hpp"

#include "support/catch.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace colossal {
namespace {

TEST_CASE("a gauge counts up to its limit and remembers its peaks", "[memory]") {
  MemoryGauge gauge;
  gauge.set_limit(100);
  CHECK(gauge.try_add(60));
  CHECK_FALSE(gauge.try_add(41));
  CHECK(gauge.try_add(40));
  gauge.remove(70);
  CHECK(gauge.use().current == 30);
  CHECK(gauge.use().peak == 100);
  gauge.reset_peak();
  CHECK(gauge.use().peak == 30);
  CHECK(gauge.use().highest == 100);
  gauge.set_limit(std::nullopt);
  CHECK(gauge.try_add(std::int64_t{1} << 62));
}

TEST_CASE("a refused request makes no other one fail", "[memory]") {
  MemoryGauge gauge;
  gauge.set_limit(1000);
  REQUIRE(gauge.try_add(500));
  std::atomic<bool> stop = false;
  std::atomic<int> wrongly_granted = 0;
  std::vector<std::jthread> greedy;
  for (int i = 0; i < 2; ++i) {
    greedy.emplace_back([&] {
      while (!stop) {
        wrongly_granted += gauge.try_add(900) ? 1 : 0;
      }
    });
  }
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const bool granted = gauge.try_add(1);
    refused += granted ? 0 : 1;
    gauge.remove(granted ? 1 : 0);
  }
  stop = true;
  greedy.clear();
  CHECK(refused == 0);
  CHECK(wrongly_granted == 0);
  CHECK(gauge.use().current == 500);
}

}  // namespace
}  // namespace colossal
