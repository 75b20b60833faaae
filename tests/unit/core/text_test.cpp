// Do numbers, counts and sizes look as people write them?
#include "core/text.hpp"

#include "support/catch.hpp"

#include <limits>

namespace colossal {
namespace {

TEST_CASE("digits come in groups of three", "[text]") {
  CHECK(thousands(0) == "0");
  CHECK(thousands(999) == "999");
  CHECK(thousands(1000) == "1,000");
  CHECK(thousands(4'190'000) == "4,190,000");
  CHECK(thousands(-100) == "-100");
  CHECK(thousands(-123'456) == "-123,456");
  CHECK(thousands(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("one thing has no plural, every other number has", "[text]") {
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(2, "rank") == "2 ranks");
  CHECK(counted(-1, "rank") == "-1 ranks");
  CHECK(counted(19'074, "step") == "19,074 steps");
  CHECK(counted(1, "box", "boxes") == "1 box");
  CHECK(counted(3, "box", "boxes") == "3 boxes");
  CHECK(counted(0, "tensor has", "tensors have") == "0 tensors have");
}

TEST_CASE("bytes of files have decimal units", "[text]") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(820) == "820 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(999.6) == "1.0 kB");
  CHECK(human_bytes(2'500) == "2.5 kB");
  CHECK(human_bytes(1'493'000'000) == "1.5 GB");
  CHECK(human_bytes(1'493'000'000, 2) == "1.49 GB");
  CHECK(human_bytes(999'960) == "1.0 MB");  // never 1000.0 kB
  CHECK(human_bytes(999'960, 2) == "999.96 kB");
  CHECK(human_bytes(999'996, 2) == "1.00 MB");  // never 1000.00 kB
  CHECK(human_bytes(999'400, 0) == "999 kB");
  CHECK(human_bytes(999'600, 0) == "1 MB");
  CHECK(human_bytes(5e15) == "5000.0 TB");
  CHECK(human_bytes(-3e6) == "-3.0 MB");
}

TEST_CASE("bytes of memory have binary units", "[text]") {
  CHECK(human_binary(820) == "820 B");
  CHECK(human_binary(1023.6) == "1.0 KiB");
  CHECK(human_binary(1536) == "1.5 KiB");
  CHECK(human_binary(1024 * 1024 - 1) == "1.0 MiB");  // never 1024.0 KiB
  CHECK(human_binary(31.2 * 1024 * 1024 * 1024) == "31.2 GiB");
  CHECK(human_binary(5e15) == "4547.5 TiB");
  CHECK(human_binary(-3 * 1024 * 1024) == "-3.0 MiB");
}

}  // namespace
}  // namespace colossal
