// Does the loss scale move as optimizers-and-recipes section 4 says, to the step?
#include "optim/loss_scale.hpp"

#include "support/catch.hpp"

#include <vector>

namespace colossal::test {
namespace {

TrainConfig fp16(const LossScaleConfig& scale = {}) {
  TrainConfig train;
  train.precision = Precision::fp16;
  train.loss_scale = scale;
  return train;
}

/// The scale after each of these steps.
std::vector<double> scales_after(LossScaler& scaler, const std::vector<int>& overflows) {
  std::vector<double> scales;
  for (const int overflow : overflows) {
    scaler.update(overflow != 0);
    scales.push_back(scaler.scale());
  }
  return scales;
}

}  // namespace

TEST_CASE("the trace of the specification: interval 4, hysteresis 2", "[loss-scale]") {
  LossScaler scaler(fp16({.growth_interval = 4}), {});
  CHECK(scaler.scale() == 65536);
  CHECK(scales_after(scaler, {0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1}) ==
        std::vector<double>{
            65536, 65536, 65536, 65536, 32768, 16384, 16384, 16384, 16384, 32768, 32768, 16384});
}

TEST_CASE("a state goes on where it stood, both counters included", "[loss-scale]") {
  const std::vector<int> overflows = {0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0};
  for (std::size_t stop = 0; stop < overflows.size(); ++stop) {
    LossScaler whole(fp16({.growth_interval = 3, .hysteresis = 2}), {});
    LossScaler first(fp16({.growth_interval = 3, .hysteresis = 2}), {});
    const auto middle = overflows.begin() + static_cast<std::ptrdiff_t>(stop);
    scales_after(first, {overflows.begin(), middle});
    LossScaler second(fp16({.growth_interval = 3, .hysteresis = 2}), first.state());
    scales_after(second, {middle, overflows.end()});
    scales_after(whole, overflows);
    CHECK(second.state() == whole.state());
  }
}

TEST_CASE("the scale stays within its bounds and says when it cannot fall", "[loss-scale]") {
  LossScaler scaler(fp16({.init = 4, .growth_interval = 1, .min = 1, .max = 8, .hysteresis = 1}),
                    {});
  CHECK(scales_after(scaler, {0, 0}) == std::vector<double>{8, 8});
  CHECK_FALSE(scaler.update(true));
  CHECK_FALSE(scaler.update(true));
  CHECK_FALSE(scaler.update(true));
  CHECK(scaler.scale() == 1);
  CHECK(scaler.update(true));
  CHECK(scaler.scale() == 1);
}

TEST_CASE("a constant scale never moves, not even on resume", "[loss-scale]") {
  LossScaler scaler(fp16({.init = 128, .growth_interval = 1, .growth = 1, .backoff = 1}),
                    LossScale{4096, 3, 1});
  CHECK(scaler.scale() == 128);
  CHECK(scales_after(scaler, {0, 1, 1, 1, 0}) == std::vector<double>(5, 128.0));
}

TEST_CASE("other precisions are not scaled", "[loss-scale]") {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    TrainConfig train;
    train.precision = precision;
    LossScaler scaler(train, LossScale{4096, 3, 1});  // of an fp16 run that goes on without
    CHECK_FALSE(scaler.active());
    CHECK(scaler.scale() == 1);
    CHECK_FALSE(scaler.update(true));
    CHECK(scaler.scale() == 1);
    CHECK_FALSE(scaler.state().has_value());
  }
}

TEST_CASE("fp16 is scaled without being told to", "[loss-scale]") {
  TrainConfig train;
  train.precision = Precision::fp16;
  const LossScaler scaler(train, {});
  CHECK(scaler.active());
  CHECK(scaler.state() == LossScale{65536, 0, 2});
}

}  // namespace colossal::test
