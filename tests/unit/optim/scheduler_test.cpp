// Does the learning rate follow its formulas, inside and beyond the run?
#include "optim/scheduler.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

namespace colossal {
namespace {

SchedulerConfig cosine(std::int64_t warmup, double floor) {
  SchedulerConfig config;
  config.type = SchedulerType::cosine;
  config.warmup_steps = warmup;
  config.min_lr_ratio = floor;
  return config;
}

TEST_CASE("beyond its end the rate stays at the floor", "[optim]") {
  const Scheduler scheduler(cosine(10, 0.1), 2, 100);
  CHECK(scheduler.lr(100) == Approx(0.2));
  CHECK(scheduler.lr(1'000'000) == Approx(0.2));
  SchedulerConfig early = cosine(10, 0.1);
  early.decay_steps = 20;
  CHECK(Scheduler(early, 2, 100).lr(30) == Approx(0.2));
  CHECK(Scheduler(early, 2, 100).lr(20) == Approx(1.1));
  early.decay_steps = 1000;  // longer than the run
  CHECK(Scheduler(early, 2, 100).lr(99) > 1.9);
}

TEST_CASE("warm-up starts from its fraction and may be a share of the run", "[optim]") {
  SchedulerConfig config = cosine(4, 0);
  config.warmup_start = 0.2;
  const Scheduler scheduler(config, 10, 100);
  CHECK(scheduler.lr(0) == Approx(4));
  CHECK(scheduler.lr(1) == Approx(6));
  CHECK(scheduler.lr(3) == Approx(10));
  config.warmup_steps.reset();
  config.warmup_ratio = 0.25;
  CHECK(Scheduler(config, 10, 100).warmup_steps() == 25);
}

TEST_CASE("warm-up from above falls to the peak", "[optim]") {
  SchedulerConfig config = cosine(4, 0);
  config.warmup_start = 3;
  const Scheduler scheduler(config, 10, 100);
  CHECK(scheduler.lr(0) == Approx(25));
  CHECK(scheduler.lr(1) == Approx(20));
  CHECK(scheduler.lr(3) == Approx(10));
  CHECK(scheduler.in_words().find("from 300% of lr") != std::string::npos);
}

TEST_CASE("constant stays at the peak after its warm-up", "[optim]") {
  SchedulerConfig config;
  config.warmup_steps = 2;
  const Scheduler scheduler(config, 3, 10);
  CHECK(scheduler.lr(0) == Approx(1.5));
  CHECK(scheduler.lr(1) == Approx(3));
  CHECK(scheduler.lr(9) == 3);
  CHECK(scheduler.lr(99) == 3);
  CHECK(Scheduler({}, 3, 10).lr(0) == 3);
}

TEST_CASE("a run may be all warm-up, a longer warm-up is refused", "[optim]") {
  CHECK(Scheduler(cosine(10, 0.1), 1, 10).lr(9) == 1);
  CHECK(Scheduler(cosine(10, 0.1), 1, 10).lr(10) == Approx(0.1));
  try {
    Scheduler(cosine(11, 0.1), 1, 10);
    FAIL("no exception");
  } catch (const Error& error) {
    CHECK(error.id() == "warmup-too-long");
    CHECK(error.exit_code() == 3);
  }
}

}  // namespace
}  // namespace colossal
