// Do Adam and AdamW equal their golden values and a step-by-step reference, in every variant and at
// odd sizes?
#include "optim/adam.hpp"

#include "core/error.hpp"
#include "optim_helpers.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <memory>
#include <vector>

namespace colossal {
namespace {

using test::noise;
using test::require_close;
using Make = std::unique_ptr<Optimizer> (*)(const OptimizerConfig&);

/// Settings of the golden table: wd 0.1, betas (0.9, 0.999), eps 1e-8.
OptimizerConfig golden_config() {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  return config;
}

FlatShard shard_of(const at::Tensor& master) {
  return test::shard_of(master, {"exp_avg", "exp_avg_sq"});
}

/// The update written as whole-tensor expressions in the order of the formula.
void reference_step(FlatShard& shard,
                    Make make,
                    const OptimizerConfig& config,
                    const ParamGroup& group,
                    const StepInfo& info) {
  const double t = static_cast<double>(info.step + 1);
  const double c1 =
      config.bias_correction == BiasCorrection::on ? 1 - std::pow(config.betas[0], t) : 1;
  const double c2 =
      config.bias_correction == BiasCorrection::on ? 1 - std::pow(config.betas[1], t) : 1;
  const double lr = info.lr * group.lr_scale;
  const double l2 = make == make_adam ? group.weight_decay : 0;
  const double decoupled = make == make_adamw ? group.weight_decay : 0;
  const at::Tensor g = shard.grad * info.grad_factor + shard.master * l2;
  at::Tensor& m = shard.state["exp_avg"];
  at::Tensor& v = shard.state["exp_avg_sq"];
  m = m * config.betas[0] + g * (1 - config.betas[0]);
  v = v * config.betas[1] + g * g * (1 - config.betas[1]);
  const double eps = config.eps.value_or(1e-8);
  const at::Tensor size = config.eps_inside_sqrt ? at::sqrt(v / c2 + eps) : at::sqrt(v / c2) + eps;
  shard.master = shard.master - (m / c1 / size + shard.master * decoupled) * lr;
}

TEST_CASE("Adam and AdamW equal the golden table after one and three steps", "[optim]") {
  test::check_golden(*optimizers().make("adamw", golden_config()),
                     {.4895000010, -.2397500005, .9890000003, 1.9880000003},
                     {.4746784299, -.2359961448, .9851911497, 1.9707566720});
  test::check_golden(*optimizers().make("adam", golden_config()),
                     {.4900000007, -.2400000004, .9900000003, 1.9900000002},
                     {.4738131192, -.2336943515, .9821081810, 1.9724859455});
}

void check_variant(Make make, const OptimizerConfig& config, at::ScalarType dtype) {
  for (const std::int64_t count : {1, 7, 64, 1003, 40001}) {
    const auto optimizer = make(config);
    const std::vector<ParamGroup> groups = {{.lr_scale = 0.5, .weight_decay = 0.2}};
    std::vector<FlatShard> shards = {shard_of(noise(count, 1, dtype))};
    FlatShard expected = shard_of(noise(count, 1, dtype));
    for (std::int64_t step = 0; step < 4; ++step) {
      const StepInfo info = {.step = step, .lr = 0.02, .grad_factor = 0.7};
      expected.grad = noise(count, static_cast<int>(step) + 3, dtype);
      shards[0].grad.copy_(expected.grad);
      test::step(*optimizer, shards, groups, info);
      reference_step(expected, make, config, groups[0], info);
    }
    const double tolerance = dtype == at::kDouble ? 1e-13 : 2e-6;
    require_close(expected.master, shards[0].master, tolerance, "weights");
    require_close(expected.state["exp_avg"], shards[0].state["exp_avg"], tolerance, "exp_avg");
    require_close(
        expected.state["exp_avg_sq"], shards[0].state["exp_avg_sq"], tolerance, "exp_avg_sq");
  }
}

TEST_CASE("Adam and AdamW equal a whole-tensor reference in every variant, dtype and size",
          "[optim]") {
  for (const Make make : {make_adamw, make_adam}) {
    for (const int variant : {0, 1, 2, 3}) {
      OptimizerConfig config = golden_config();
      config.betas = {0.8, 0.95};
      config.eps_inside_sqrt = (variant & 1) != 0;
      config.bias_correction = (variant & 2) == 0 ? BiasCorrection::on : BiasCorrection::off;
      check_variant(make, config, at::kDouble);
      check_variant(make, config, at::kFloat);
    }
  }
}

TEST_CASE("each segment is updated with its own group; padding stays zero", "[optim]") {
  OptimizerConfig config = golden_config();
  config.eps = 0;  // 0/0 in padding would show
  const auto optimizer = make_adamw(config);
  const at::Tensor start = noise(192, 1, at::kDouble);
  start.narrow(0, 50, 14).zero_();
  std::vector<FlatShard> shards = {shard_of(start)};
  shards[0].segments = {{.param = 0, .begin = 0, .end = 50, .offset = 0},
                        {.param = 1, .begin = 0, .end = 64, .offset = 64},
                        {.param = 2, .begin = 0, .end = 64, .offset = 128}};
  shards[0].grad.copy_(noise(192, 5, at::kDouble));
  shards[0].grad.narrow(0, 50, 14).zero_();
  const std::vector<ParamGroup> groups = {{1, 0.1}, {0.25, 0}, {0.25, 0}};
  test::step(*optimizer, shards, groups, {.step = 0, .lr = 0.01});
  for (const Segment& segment : shards[0].segments) {
    const std::int64_t length = segment.end - segment.begin;
    FlatShard expected = shard_of(start.narrow(0, segment.offset, length));
    expected.grad.copy_(shards[0].grad.narrow(0, segment.offset, length));
    reference_step(expected,
                   make_adamw,
                   config,
                   groups[static_cast<std::size_t>(segment.param)],
                   {.step = 0, .lr = 0.01});
    require_close(
        expected.master, shards[0].master.narrow(0, segment.offset, length), 1e-12, "segment");
  }
  CHECK(shards[0].master.narrow(0, 50, 14).abs().max().item<double>() == 0);
}

TEST_CASE("a large shard is updated alike whole and in pieces", "[optim]") {
  const auto optimizer = make_adamw(golden_config());
  const std::vector<ParamGroup> groups = {{1, 0.1}};
  std::vector<FlatShard> whole = {shard_of(noise(50001, 1, at::kFloat))};
  whole[0].grad.copy_(noise(50001, 9, at::kFloat));
  std::vector<FlatShard> pieces;
  for (std::int64_t begin = 0; begin < 50001; begin += 777) {
    const std::int64_t length = std::min(std::int64_t{777}, 50001 - begin);
    pieces.push_back(shard_of(whole[0].master.narrow(0, begin, length)));
    pieces.back().grad.copy_(whole[0].grad.narrow(0, begin, length));
  }
  test::step(*optimizer, whole, groups, {.step = 3, .lr = 0.01});
  test::step(*optimizer, pieces, groups, {.step = 3, .lr = 0.01});
  std::int64_t begin = 0;
  for (const FlatShard& piece : pieces) {
    CHECK(piece.master.equal(whole[0].master.narrow(0, begin, piece.master.numel())));
    begin += piece.master.numel();
  }
}

TEST_CASE("late steps keep an exact bias correction", "[optim]") {
  OptimizerConfig config = golden_config();
  config.betas = {0.9, 0.9999999};
  std::vector<FlatShard> shards = {shard_of(at::tensor({1.0}, at::kDouble))};
  shards[0].grad.fill_(1e-3);
  test::step(*make_adamw(config), shards, std::vector<ParamGroup>{{1, 0}}, {.step = 0, .lr = 0.01});
  // m/c1 = g and v/c2 = g^2, so the step is lr g / (g + eps), to all digits of c2.
  CHECK(shards[0].master.item<double>() == Approx(1 - 0.01 * 1e-3 / (1e-3 + 1e-8)).epsilon(1e-12));
}

TEST_CASE("a shard without its states and wrong betas are refused", "[optim]") {
  const auto optimizer = make_adamw(golden_config());
  CHECK(optimizer->states() == std::vector<std::string_view>({"exp_avg", "exp_avg_sq"}));
  std::vector<FlatShard> shards = {shard_of(noise(8, 1, at::kFloat))};
  shards[0].state.erase("exp_avg_sq");
  CHECK_THROWS_WITH(test::step(*optimizer, shards, std::vector<ParamGroup>{{1, 0}}, {}),
                    "a shard of 8 elements has no state 'exp_avg_sq' of its length");
  OptimizerConfig config;
  config.betas = {0.9};
  CHECK_THROWS_WITH(make_adamw(config), "optimizer.betas needs 2 numbers for adamw, it has 1");
  CHECK_THROWS_WITH(make_adam(config), "optimizer.betas needs 2 numbers for adam, it has 1");
  const auto has_id = [](const char* id) {
    return Catch::Matchers::Predicate<Error>([id](const Error& e) { return e.id() == id; }, id);
  };
  CHECK_THROWS_MATCHES(make_adamw(config), Error, has_id("betas-count"));
  CHECK_THROWS_MATCHES(test::step(*optimizer, shards, std::vector<ParamGroup>{{1, 0}}, {}),
                       Error,
                       has_id("optimizer-state"));
}

}  // namespace
}  // namespace colossal
