// Do numbers look as config-and-cli 6.1 and 10 show them?
#include "train/human.hpp"

#include "support/catch.hpp"

namespace colossal::test {

TEST_CASE("counts get a unit and one decimal", "[human]") {
  CHECK(human_count(0) == "0");
  CHECK(human_count(950) == "950");
  CHECK(human_count(182'412) == "182.4k");
  CHECK(human_count(124'439'808) == "124.4M");
  CHECK(human_count(999'960) == "1.0M");
  CHECK(human_count(1.2e12) == "1.2T");
  CHECK(human_count(5e15) == "5000.0T");
}

TEST_CASE("memory of a whole device is told in GiB", "[human]") {
  CHECK(human_gib(31.2 * 1024 * 1024 * 1024) == "31.2 GiB");
}

TEST_CASE("durations show their two largest units", "[human]") {
  CHECK(human_duration(-1) == "0s");
  CHECK(human_duration(47.6) == "48s");
  CHECK(human_duration(59.7) == "1m00s");
  CHECK(human_duration(725) == "12m05s");
  CHECK(human_duration(3 * 3600 + 44 * 60) == "3h44m");
}

}  // namespace colossal::test
