// Do SGD and Lion equal their golden values and a step-by-step reference, in every variant and at
// odd sizes?
#include "optim/sgd.hpp"

#include "optim/lion.hpp"
#include "optim_helpers.hpp"
#include "support/catch.hpp"

#include <ATen/TensorOperators.h>

#include <vector>

namespace colossal {
namespace {

using test::noise;
using test::require_close;
using test::shard_of;

OptimizerConfig sgd_config(double momentum, bool nesterov) {
  OptimizerConfig config;
  config.type = OptimizerType::sgd;
  config.momentum = momentum;
  config.nesterov = nesterov;
  return config;
}

/// The update written as whole-tensor expressions; the buffer starts as the first gradient.
void reference_step(FlatShard& shard,
                    const OptimizerConfig& config,
                    const ParamGroup& group,
                    const StepInfo& info) {
  const at::Tensor d = shard.grad * info.grad_factor + shard.master * group.weight_decay;
  at::Tensor& buffer = shard.state["momentum_buffer"];
  buffer = info.step == 0 ? d.clone() : buffer * config.momentum + d;
  const at::Tensor direction = config.nesterov ? d + buffer * config.momentum : buffer;
  shard.master = shard.master - direction * (info.lr * group.lr_scale);
}

TEST_CASE("Lion equals the golden table after one and three steps", "[optim]") {
  OptimizerConfig config;
  config.betas = {0.9, 0.99};
  test::check_golden(*make_lion(config),
                     {.4895, -.23975, .989, 1.988},
                     {.4885314895, -.2592607397, .9870129890, 1.9640359880});
  CHECK(make_lion(config)->states() == std::vector<std::string_view>({"exp_avg"}));
  config.betas = {0.9};
  CHECK_THROWS_WITH(make_lion(config), "optimizer.betas needs 2 numbers for lion, it has 1");
}

TEST_CASE("Lion by tensor operations has the bits of its loop", "[optim]") {
  const detail::LionFactors factors{
      .beta1 = 0.9, .beta2 = 0.99, .grad = 0.3, .shrink = 0.998, .step = 0.01};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    FlatShard tensors = shard_of(noise(1003, 1, dtype), {"exp_avg"});
    tensors.grad = noise(1003, 2, at::kFloat).to(at::kBFloat16);
    tensors.working = noise(1003, 1, at::kFloat).to(at::kBFloat16);
    const at::Tensor untouched = tensors.working.clone();
    const at::Tensor param = tensors.master.clone();
    const at::Tensor moment = tensors.state["exp_avg"].clone();
    const at::Tensor grad = tensors.grad.to(dtype);
    constexpr std::int64_t kFirst = 7;
    constexpr std::int64_t kCount = 990;
    std::vector<FlatShard> shards = {tensors};
    const auto arrays = detail::arrays_of(shards, std::vector<std::string_view>{"exp_avg"});
    const std::vector<detail::cuda::Slice> slices = {{.at = kFirst, .count = 500},
                                                     {.at = kFirst + 500, .count = kCount - 500}};
    for (int k = 0; k < 3; ++k) {
      detail::lion_on_tensors(
          {arrays[0], dtype, slices, {}}, std::vector{factors, factors}, at::kCPU);
      if (dtype == at::kFloat) {
        detail::lion(param.data_ptr<float>() + kFirst,
                     moment.data_ptr<float>() + kFirst,
                     grad.const_data_ptr<float>() + kFirst,
                     kCount,
                     factors);
      } else {
        detail::lion(param.data_ptr<double>() + kFirst,
                     moment.data_ptr<double>() + kFirst,
                     grad.const_data_ptr<double>() + kFirst,
                     kCount,
                     factors);
      }
    }
    CHECK(tensors.master.equal(param));
    CHECK(tensors.state["exp_avg"].equal(moment));
    CHECK(tensors.working.narrow(0, kFirst, kCount)
              .equal(param.narrow(0, kFirst, kCount).to(at::kBFloat16)));
    CHECK(tensors.working.narrow(0, 0, kFirst).equal(untouched.narrow(0, 0, kFirst)));
  }
}

TEST_CASE("SGD equals the golden table after one and three steps", "[optim]") {
  test::check_golden(*optimizers().make("sgd", sgd_config(0.9, false)),
                     {.4985000000, -.2477500000, .9960000000, 1.9940000000},
                     {.4916931985, -.2455852978, .9899731960, 1.9769647940});
  test::check_golden(*optimizers().make("sgd", sgd_config(0.9, true)),
                     {.4971500000, -.2457250000, .9924000000, 1.9886000000},
                     {.4890409617, -.2447901976, .9859979446, 1.9683149668});
}

void check_variant(const OptimizerConfig& config, at::ScalarType dtype) {
  for (const std::int64_t count : {1, 7, 64, 1003, 40001}) {
    INFO("momentum " << config.momentum << ", " << count << " elements");
    const auto optimizer = make_sgd(config);
    const std::vector<std::string_view> states = optimizer->states();
    const std::vector<ParamGroup> groups = {{.lr_scale = 0.5, .weight_decay = 0.2}};
    std::vector<FlatShard> shards = {
        shard_of(noise(count, 1, dtype), {states.begin(), states.end()})};
    FlatShard expected = shard_of(noise(count, 1, dtype), {"momentum_buffer"});
    for (std::int64_t step = 0; step < 5; ++step) {
      const StepInfo info = {.step = step, .lr = 0.02, .grad_factor = 0.7};
      expected.grad = noise(count, static_cast<int>(step) + 3, dtype);
      shards[0].grad.copy_(expected.grad);
      test::step(*optimizer, shards, groups, info);
      reference_step(expected, config, groups[0], info);
    }
    require_close(
        expected.master, shards[0].master, dtype == at::kDouble ? 1e-13 : 2e-6, "weights");
  }
}

TEST_CASE("SGD equals a whole-tensor reference in every variant, dtype and size", "[optim]") {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    check_variant(sgd_config(0.9, false), dtype);
    check_variant(sgd_config(0.9, true), dtype);
    check_variant(sgd_config(0, false), dtype);
  }
}

TEST_CASE("SGD keeps a buffer only with momentum", "[optim]") {
  CHECK(make_sgd(sgd_config(0, false))->states().empty());
  const auto optimizer = make_sgd(sgd_config(0.9, false));
  CHECK(optimizer->states() == std::vector<std::string_view>{"momentum_buffer"});
  std::vector<FlatShard> shards = {shard_of(noise(8, 1, at::kFloat), {})};
  CHECK_THROWS_WITH(test::step(*optimizer, shards, std::vector<ParamGroup>{{1, 0}}, {}),
                    "a shard of 8 elements has no state 'momentum_buffer' of its length");
}

TEST_CASE("SGD updates each segment with its own group and leaves padding alone", "[optim]") {
  const at::Tensor start = noise(192, 1, at::kDouble);
  start.narrow(0, 50, 14).zero_();
  std::vector<FlatShard> shards = {shard_of(start, {"momentum_buffer"})};
  shards[0].segments = {{.param = 0, .begin = 0, .end = 50, .offset = 0},
                        {.param = 1, .begin = 0, .end = 128, .offset = 64}};
  shards[0].grad.copy_(noise(192, 5, at::kDouble));
  const std::vector<ParamGroup> groups = {{1, 0.1}, {0.25, 0}};
  test::step(*make_sgd(sgd_config(0.9, false)), shards, groups, {.step = 0, .lr = 0.5});
  const auto moved = [&](std::int64_t at, std::int64_t count, const ParamGroup& group) {
    const at::Tensor w = start.narrow(0, at, count);
    const at::Tensor g = shards[0].grad.narrow(0, at, count);
    return w - (g + w * group.weight_decay) * (0.5 * group.lr_scale);
  };
  require_close(moved(0, 50, groups[0]), shards[0].master.narrow(0, 0, 50), 1e-15, "first");
  require_close(moved(64, 128, groups[1]), shards[0].master.narrow(0, 64, 128), 1e-15, "second");
  CHECK(shards[0].master.narrow(0, 50, 14).abs().max().item<double>() == 0);
  CHECK(shards[0].state["momentum_buffer"].narrow(0, 50, 14).abs().max().item<double>() == 0);
}

}  // namespace
}  // namespace colossal
