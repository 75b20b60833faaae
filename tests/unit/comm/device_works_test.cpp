// Are collectives of a GPU forgotten when they end, and told when they do not?
#include "comm/detail/device_works.hpp"

#include "support/catch.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace colossal::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// A collective whose state the test sets.
DeviceWork work(std::string op, std::shared_ptr<WorkState> state, milliseconds age = {}) {
  return {.collective = {.group = "data", .op = std::move(op), .sequence = 1, .bytes = 8},
          .ranks = {0, 1},
          .probe = [state = std::move(state)] { return *state; },
          .entered = steady_clock::now() - age};
}

TEST_CASE("work that has ended is no trouble, however old", "[comm][device]") {
  DeviceWorks works;
  works.add(work("all_reduce", std::make_shared<WorkState>(WorkState::done), milliseconds(5000)));
  CHECK_FALSE(works.trouble(milliseconds(1000)));
}

TEST_CASE("work beyond the time-out is named, the oldest first", "[comm][device]") {
  DeviceWorks works;
  const auto running = std::make_shared<WorkState>(WorkState::running);
  works.add(work("all_gather", running, milliseconds(5000)));
  works.add(work("all_reduce", running, milliseconds(4000)));
  CHECK_FALSE(works.trouble(milliseconds(60'000)));
  const auto trouble = works.trouble(milliseconds(1000));
  REQUIRE(trouble);
  CHECK(trouble->work.collective.op == "all_gather");
  CHECK_FALSE(trouble->broken);
  *running = WorkState::done;
  CHECK_FALSE(works.trouble(milliseconds(1000)));
}

TEST_CASE("broken work is trouble at once", "[comm][device]") {
  DeviceWorks works;
  works.add(work("broadcast", std::make_shared<WorkState>(WorkState::broken)));
  const auto trouble = works.trouble(milliseconds(60'000));
  REQUIRE(trouble);
  CHECK(trouble->broken);
}

TEST_CASE("ended work lets go of its tensors when the next one starts", "[comm][device]") {
  DeviceWorks works;
  auto ended = std::make_shared<WorkState>(WorkState::done);
  const std::weak_ptr<WorkState> held = ended;
  works.add(work("all_reduce", std::move(ended)));
  CHECK_FALSE(held.expired());
  works.add(work("all_reduce", std::make_shared<WorkState>(WorkState::running)));
  CHECK(held.expired());
}

}  // namespace
}  // namespace colossal::detail
