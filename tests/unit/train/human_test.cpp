// Do numbers look as config-and-cli 6.1 and 10 show them?
#include "train/human.hpp"

#include "support/catch.hpp"

using namespace colossal;  // NOLINT(google-build-using-namespace): a test file

TEST_CASE("counts get a unit and one decimal", "[human]") {
  CHECK(human_count(0) == "0");
  CHECK(human_count(950) == "950");
  CHECK(human_count(182'412) == "182.4k");
  CHECK(human_count(124'439'808) == "124.4M");
  CHECK(human_count(999'960) == "1.0M");
  CHECK(human_count(1.2e12) == "1.2T");
  CHECK(human_count(5e15) == "5000.0T");
}

TEST_CASE("bytes are decimal in files and binary in memory", "[human]") {
  CHECK(human_bytes(820) == "820 B");
  CHECK(human_bytes(1'493'000'000) == "1.5 GB");
  CHECK(human_bytes(1'493'000'000, 2) == "1.49 GB");
  CHECK(human_bytes(2'500) == "2.5 kB");
  CHECK(human_gib(31.2 * 1024 * 1024 * 1024) == "31.2 GiB");
}

TEST_CASE("sizes of memory have binary units", "[human]") {
  CHECK(human_binary(820) == "820 B");
  CHECK(human_binary(1023.6) == "1.0 KiB");
  CHECK(human_binary(1536) == "1.5 KiB");
  CHECK(human_binary(1024 * 1024 - 1) == "1.0 MiB");  // never 1024.0 KiB
  CHECK(human_binary(31.2 * 1024 * 1024 * 1024) == "31.2 GiB");
  CHECK(human_binary(5e15) == "4547.5 TiB");
  CHECK(human_binary(-3 * 1024 * 1024) == "-3.0 MiB");
}

TEST_CASE("durations show their two largest units", "[human]") {
  CHECK(human_duration(-1) == "0s");
  CHECK(human_duration(47.6) == "48s");
  CHECK(human_duration(59.7) == "1m00s");
  CHECK(human_duration(725) == "12m05s");
  CHECK(human_duration(3 * 3600 + 44 * 60) == "3h44m");
}

TEST_CASE("digits come in groups of three", "[human]") {
  CHECK(thousands(0) == "0");
  CHECK(thousands(999) == "999");
  CHECK(thousands(19'074) == "19,074");
  CHECK(thousands(10'000'269'312) == "10,000,269,312");
  CHECK(thousands(-100) == "-100");
  CHECK(thousands(-1'234) == "-1,234");
}
