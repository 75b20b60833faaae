// Do the curves after the warm-up have their golden values, stay in [0, 1] forever, and refuse what
// would never reach the peak?
#include "optim/curves.hpp"

#include "core/error.hpp"
#include "optim/scheduler.hpp"
#include "optim_helpers.hpp"
#include "support/catch.hpp"

#include <map>
#include <string>
#include <vector>

namespace colossal {
namespace {

/// Warm-up 10, floor 0.1: the table of optimizers-and-recipes 5, over 100 steps.
SchedulerConfig golden(SchedulerType type) {
  SchedulerConfig config;
  config.type = type;
  config.warmup_steps = 10;
  config.min_lr_ratio = 0.1;
  return config;
}

void check_rates(const SchedulerConfig& config, const std::map<std::int64_t, double>& rates) {
  const Scheduler scheduler(config, 1, 100);
  for (const auto& [step, rate] : rates) {
    INFO("step " << step);
    CHECK(scheduler.lr(step) == Approx(rate).epsilon(1e-8));
  }
}

std::string id_of(const SchedulerConfig& config, std::int64_t steps = 100) {
  try {
    const Scheduler scheduler(config, 1, steps);
  } catch (const Error& error) {
    CHECK(error.exit_code() == 3);
    return std::string(error.id());
  }
  return "";
}

/// Every type with the keys it cannot do without.
std::vector<SchedulerConfig> all_schedulers() {
  std::vector<SchedulerConfig> all;
  for (int type = 0; type <= static_cast<int>(SchedulerType::one_cycle); ++type) {
    SchedulerConfig& config = all.emplace_back();
    config.type = static_cast<SchedulerType>(type);
    config.step_size = 20;
    config.milestones = {20, 70};
    if (config.type != SchedulerType::one_cycle) {
      config.warmup_steps = 10;
    }
  }
  return all;
}

TEST_CASE("the curves equal the golden table", "[optim]") {
  check_rates(
      golden(SchedulerType::cosine),
      {{0, .1}, {9, 1}, {10, 1}, {55, .55}, {80, .205280001}, {90, .127138321}, {99, .100274128}});
  check_rates(golden(SchedulerType::linear),
              {{0, .1}, {9, 1}, {10, 1}, {55, .55}, {80, .3}, {90, .2}, {99, .11}});
  SchedulerConfig quadratic = golden(SchedulerType::polynomial);
  quadratic.power = 2;
  check_rates(
      quadratic,
      {{0, .1}, {9, 1}, {10, 1}, {55, .325}, {80, .144444444}, {90, .111111111}, {99, .100111111}});
  check_rates(golden(SchedulerType::wsd),
              {{0, .1}, {9, 1}, {10, 1}, {55, 1}, {80, 1}, {90, .363603897}, {99, .122788509}});
  SchedulerConfig cycle;
  cycle.type = SchedulerType::one_cycle;
  check_rates(
      cycle, {{0, .04}, {10, .295163948}, {29, 1}, {30, .999496535}, {60, .589280090}, {99, 4e-6}});
}

TEST_CASE("every curve stays between 0 and the peak, beyond the run too", "[optim]") {
  for (const SchedulerConfig& config : all_schedulers()) {
    INFO("type " << static_cast<int>(config.type));
    const Scheduler scheduler(config, 2, 100);
    double highest = 0;
    for (std::int64_t k = 0; k < 1000; ++k) {
      REQUIRE(scheduler.lr(k) >= 0);
      REQUIRE(scheduler.lr(k) <= 2);
      highest = std::max(highest, scheduler.lr(k));
    }
    CHECK(highest == 2);
    CHECK(scheduler.lr(1'000'000'000) >= 0);
  }
}

TEST_CASE("the floor holds where a curve falls without end", "[optim]") {
  for (SchedulerConfig config : all_schedulers()) {
    if (config.type != SchedulerType::constant && config.type != SchedulerType::one_cycle) {
      config.min_lr_ratio = 0.25;
      config.gamma = 0.01;
      CHECK(Scheduler(config, 1, 100).lr(1'000'000) == 0.25);
    }
  }
}

TEST_CASE("a curve that cannot reach its peak is refused", "[optim]") {
  SchedulerConfig config;
  config.type = SchedulerType::inverse_sqrt;
  CHECK(id_of(config) == "warmup-required");
  config.warmup_ratio = 0.001;  // rounds to no step of 100
  CHECK(id_of(config) == "warmup-required");
  config.warmup_ratio = 0.01;
  CHECK(id_of(config).empty());

  config = golden(SchedulerType::wsd);
  config.warmup_steps = 80;
  CHECK(id_of(config).empty());
  config.warmup_steps = 81;
  CHECK(id_of(config) == "warmup-too-long");

  config = golden(SchedulerType::step);
  config.step_size = 11;
  CHECK(id_of(config).empty());
  config.step_size = 10;
  CHECK(id_of(config) == "warmup-too-long");

  config = golden(SchedulerType::multistep);
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{10, 20}, {20, 20}, {30, 20}}) {
    config.milestones = bad;
    CHECK(id_of(config) == "milestones-order");
  }
  config.milestones = {11, 20};
  CHECK(id_of(config).empty());
}

TEST_CASE("a schedule is told in words", "[optim]") {
  CHECK(Scheduler({}, 1, 10).in_words() == "constant");
  CHECK(Scheduler(golden(SchedulerType::cosine), 1, 100).in_words() ==
        "10 steps of warm-up, then cosine from step 10 to 10% of lr at step 100");
  SchedulerConfig config = golden(SchedulerType::wsd);
  config.warmup_start = 0.5;
  config.min_lr_ratio = 0;
  CHECK(Scheduler(config, 1, 100).in_words() ==
        "10 steps of warm-up from 50% of lr, then flat, then 1 - sqrt decay from step 80 to 0 at "
        "step 100");
  config = golden(SchedulerType::multistep);
  config.milestones = {20, 70};
  CHECK(Scheduler(config, 1, 100).in_words() ==
        "10 steps of warm-up, then times 0.1 at steps 20, 70, not below 10% of lr");
  std::map<std::string, int> texts;
  for (const SchedulerConfig& one : all_schedulers()) {
    ++texts[Scheduler(one, 1, 100).in_words()];
  }
  CHECK(texts.size() == 10);
}

/// Weights after two updates with `optimizer` at the momenta of one_cycle.
at::Tensor cycled(Optimizer& optimizer, std::optional<double> first, std::optional<double> second) {
  const std::vector<std::string_view> names = optimizer.states();
  std::vector<FlatShard> shards = {
      test::shard_of(test::noise(16, 1, at::kDouble), {names.begin(), names.end()})};
  const std::vector<ParamGroup> groups = {{1, 0}};
  shards[0].grad.copy_(test::noise(16, 2, at::kDouble));
  test::step(optimizer, shards, groups, {.step = 0, .lr = 0.1, .momentum = first});
  shards[0].grad.copy_(test::noise(16, 3, at::kDouble));
  test::step(optimizer, shards, groups, {.step = 1, .lr = 0.1, .momentum = second});
  return shards[0].master;
}

TEST_CASE("optimizers use the scheduled momentum, and none where they have none", "[optim]") {
  for (const char* type : {"adamw", "adam", "sgd", "lamb", "lars"}) {
    INFO(type);
    OptimizerConfig own;
    own.momentum = own.betas[0] = 0.7;
    const auto scheduled = optimizers().make(type, {});
    const auto fixed = optimizers().make(type, own);
    const at::Tensor expected = cycled(*fixed, {}, {});
    test::require_close(expected, cycled(*scheduled, 0.7, 0.7), 1e-15, "momentum 0.7");
    CHECK_FALSE(expected.equal(cycled(*scheduled, 0.7, 0.9)));
    own.momentum = own.betas[0] = 0;
    const auto none = optimizers().make(type, own);
    CHECK(cycled(*none, 0.7, 0.9).equal(cycled(*none, {}, {})));
  }
}

}  // namespace
}  // namespace colossal
