// Does a long task speak at the right times, and a short one never?
#include "core/pace.hpp"

#include "support/catch.hpp"

#include <string>

namespace colossal {
namespace {

/// The seconds of 0, 1, ... 40 at which a line is due.
std::string due_at(Pace pace) {
  std::string seconds;
  for (int second = 0; second <= 40; ++second) {
    seconds += pace.due(second) ? " " + std::to_string(second) : "";
  }
  return seconds;
}

TEST_CASE("the first line comes early, the others at equal distances", "[pace]") {
  CHECK(due_at({3, 10}) == " 3 13 23 33");
  CHECK(due_at({10, 10}) == " 10 20 30 40");
  CHECK(due_at({50, 1}).empty());
}

TEST_CASE("a task that was held up says one line, not all that it missed", "[pace]") {
  Pace pace(2, 2);
  CHECK(pace.due(100));
  CHECK_FALSE(pace.due(100));
  CHECK_FALSE(pace.due(101.9));
  CHECK(pace.due(102));
}

}  // namespace
}  // namespace colossal
