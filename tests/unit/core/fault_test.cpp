// Does the fault hook act for exactly the rank and step that a test names?
#include "core/fault.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

namespace fault = colossal::fault;

namespace {

/// COLOSSAL_FAULT while alive.
class Variable {
 public:
  explicit Variable(const char* value) { ::setenv("COLOSSAL_FAULT", value, 1); }
  ~Variable() { ::unsetenv("COLOSSAL_FAULT"); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
};

}  // namespace

#if COLOSSAL_FAULTS

TEST_CASE("without the variable nothing happens", "[fault]") {
  REQUIRE(fault::at_step(0, 0) == fault::Poison::none);
  REQUIRE(fault::write_limit(0) == fault::kNoLimit);
}

TEST_CASE("a fault acts at its rank and step only", "[fault]") {
  const Variable variable("rank=2,step=5,kind=nan");
  REQUIRE(fault::at_step(2, 5) == fault::Poison::loss);
  REQUIRE(fault::at_step(1, 5) == fault::Poison::none);
  REQUIRE(fault::at_step(2, 4) == fault::Poison::none);
  REQUIRE(fault::write_limit(2) == fault::kNoLimit);
}

TEST_CASE("a fault of one attempt does not come again after a restart", "[fault]") {
  const Variable variable("rank=0,step=3,attempt=1,kind=nan");
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  CHECK(fault::at_step(0, 3) == fault::Poison::none);
  ::setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
  CHECK(fault::at_step(0, 3) == fault::Poison::loss);
  CHECK(fault::at_step(0, 4) == fault::Poison::none);
  ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  CHECK(fault::at_step(0, 3) == fault::Poison::none);
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}

TEST_CASE("kind throw throws an internal error", "[fault]") {
  const Variable variable("rank=0,step=1,kind=throw");
  try {
    fault::at_step(0, 1);
    FAIL("nothing was thrown");
  } catch (const colossal::Error& error) {
    REQUIRE(error.id() == "fault-thrown");
    REQUIRE(error.kind() == colossal::ErrorKind::internal);
  }
}

TEST_CASE("kind write-sleep pauses its rank alone", "[fault]") {
  const Variable variable("rank=1,kind=write-sleep:1");
  const auto seconds = [](int rank) {
    const auto start = std::chrono::steady_clock::now();
    fault::pause_write(rank);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  CHECK(seconds(0) < 0.5);
  CHECK(seconds(1) >= 1);
}

TEST_CASE("kind write-error limits the bytes of its rank", "[fault]") {
  const Variable variable("rank=1,kind=write-error:4096");
  REQUIRE(fault::write_limit(1) == 4096);
  REQUIRE(fault::write_limit(0) == fault::kNoLimit);
}

TEST_CASE("kind nvme-error limits the optimizer states of its rank, and no checkpoint", "[fault]") {
  const Variable variable("rank=1,kind=nvme-error:8192");
  REQUIRE(fault::nvme_limit(1) == 8192);
  REQUIRE(fault::nvme_limit(0) == fault::kNoLimit);
  REQUIRE(fault::write_limit(1) == fault::kNoLimit);
}

TEST_CASE("a malformed fault is refused", "[fault]") {
  const std::string text = GENERATE("",
                                    "kind=melt",
                                    "rank=x,kind=nan",
                                    "kind=sleep",
                                    "kind=odd-error:1",
                                    "kind=nvme-error",
                                    "kind=nan:3",
                                    "host=a",
                                    "rank=1");
  INFO(text);
  const Variable variable(text.c_str());
  try {
    fault::at_step(0, 0);
    FAIL("accepted");
  } catch (const colossal::Error& error) {
    REQUIRE(error.id() == "fault-spec");
    REQUIRE(error.exit_code() == 2);
  }
}

#else

TEST_CASE("without COLOSSAL_FAULTS the variable has no effect", "[fault]") {
  const Variable variable("rank=0,step=0,kind=throw");
  REQUIRE(fault::at_step(0, 0) == fault::Poison::none);
  REQUIRE(fault::write_limit(0) == fault::kNoLimit);
}

#endif
