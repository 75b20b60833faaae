// Is the free part of a device spent as promised, and is too little told?
#include "memory/detail/measured_plan.hpp"

#include "memory/device_memory.hpp"
#include "memory_helpers.hpp"

#include <ATen/ops/empty.h>

#include <numeric>
#include <random>
#include <vector>

namespace colossal::detail {
namespace {

using test::error_of;

MeasuredInput input_of(std::int64_t device, std::vector<std::int64_t> non_model) {
  MeasuredInput input;
  input.device_bytes = device;
  input.shares = {.steady_ratio = 1, .margin_ratio = 1, .reserve = 0};
  input.needs.assign(non_model.size(), 10);
  input.non_model = std::move(non_model);
  return input;
}

TEST_CASE("optimizers of the last chunks move up first; the rest is cache", "[memory]") {
  MeasuredInput input = input_of(100, {20, 50});
  input.optimizer_bytes = {15, 15, 15};
  const MeasuredDecision decision = decide(input);
  // The second moment leaves 100 - 50 - 10 = 40: two optimizers fit.
  CHECK(decision.to_device == std::vector<int>{2, 1});
  CHECK(decision.budgets == std::vector<std::int64_t>{50, 20});
}

TEST_CASE("ratios keep their share free", "[memory]") {
  MeasuredInput input = input_of(1000, {100});
  input.shares = {.steady_ratio = 0.5, .margin_ratio = 0.5, .reserve = 0.2};
  input.home_bytes = 100;
  input.optimizer_bytes = {90, 100};
  const MeasuredDecision decision = decide(input);
  // Usable 400, less home and activations 200; margin 190, half of it 95: 100 is too large, 90
  // fits.
  CHECK(decision.to_device == std::vector<int>{0});
  CHECK(decision.budgets == std::vector<std::int64_t>{110});
}

TEST_CASE("a moment that does not fit is told with what is missing", "[memory]") {
  const Error error = error_of([] { (void)decide(input_of(100, {20, 95})); });
  CHECK(error.id() == "budget-too-small");
  CHECK(error.exit_code() == 6);
  CHECK_THAT(error.what(), Catch::Matchers::Contains("acquisition 1"));
  CHECK_THAT(error.what(), Catch::Matchers::Contains("5 bytes are missing"));
}

TEST_CASE("no decision exceeds the device at any moment", "[memory]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    MeasuredInput input = input_of(1000, {});
    input.shares = {.steady_ratio = 0.9, .margin_ratio = 0.8, .reserve = 0.05};
    input.home_bytes = static_cast<std::int64_t>(random() % 100);
    for (int i = 0; i < 6; ++i) {
      input.non_model.push_back(static_cast<std::int64_t>(random() % 500));
      input.needs.push_back(static_cast<std::int64_t>(random() % 200));
      input.optimizer_bytes.push_back(static_cast<std::int64_t>(random() % 120));
    }
    const MeasuredDecision decision = decide(input);
    std::int64_t moved = 0;
    for (const int chunk : decision.to_device) {
      moved += input.optimizer_bytes[static_cast<std::size_t>(chunk)];
    }
    for (std::size_t i = 0; i < decision.budgets.size(); ++i) {
      CHECK(decision.budgets[i] >= input.needs[i]);
      CHECK(input.home_bytes + moved + input.non_model[i] + decision.budgets[i] <= 855);
    }
  }
}

TEST_CASE("peaks are taken between acquisitions, without what the store holds", "[memory]") {
  (void)device_memory();
  const auto tensor = [](std::int64_t bytes) { return at::empty({bytes}, at::kByte); };
  const std::int64_t before = device_memory().use().current;
  NonModelTrace trace;
  trace.begin();
  {
    const at::Tensor early = tensor(1000);
  }
  trace.observe(before);
  trace.next();
  const at::Tensor gathered = tensor(5000);  // the store's
  {
    const at::Tensor temporary = tensor(3000);
  }
  trace.observe(before + 5000);
  trace.next();
  {
    const at::Tensor temporary = tensor(200);
  }
  trace.observe(before + 5000);
  CHECK(trace.finish() == std::vector<std::int64_t>{3000, 200});
}

}  // namespace
}  // namespace colossal::detail
