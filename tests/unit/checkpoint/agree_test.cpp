// Does a failure of any kind reach the caller as an Error with the right id?
#include "checkpoint/detail/agree.hpp"

#include "unit/checkpoint/fixture.hpp"

#include <stdexcept>

namespace colossal::test {
namespace {

Failure outcome_of(const std::function<std::string()>& body) {
  return failure_of([&] { static_cast<void>(detail::agree(Comm(), "checkpoint-write", body)); });
}

}  // namespace

TEST_CASE("results come back in order of rank", "[agree]") {
  CHECK(detail::agree(Comm(), "checkpoint-write", [] { return std::string("-x"); }) ==
        std::vector<std::string>{"-x"});
  CHECK(detail::agree(Comm(), "checkpoint-write", [] { return std::string(); }) ==
        std::vector<std::string>{""});
}

TEST_CASE("our own errors pass unchanged", "[agree]") {
  const Failure failure = outcome_of(
      []() -> std::string { fail(ErrorKind::internal, "checkpoint-record", "no {}", "way"); });
  CHECK(failure.id == "checkpoint-record");
  CHECK(failure.text == "no way");
  CHECK(failure.exit_code == 1);
}

TEST_CASE("foreign exceptions become checkpoint errors", "[agree]") {
  const Failure failure =
      outcome_of([]() -> std::string { throw std::runtime_error("bad \xFF byte"); });
  CHECK(failure.id == "checkpoint-write");
  CHECK(failure.exit_code == 5);
  CHECK(contains(failure.text, "bad "));
}

TEST_CASE("an error keeps the contexts of its place, once", "[agree]") {
  const ErrorContext context("saving step 7");
  const Failure failure = outcome_of(
      []() -> std::string { fail(ErrorKind::checkpoint, "checkpoint-write", "disk gone"); });
  const std::size_t first = failure.text.find("saving step 7");
  REQUIRE(first != std::string::npos);
  CHECK(failure.text.find("saving step 7", first + 1) == std::string::npos);
}

}  // namespace colossal::test
