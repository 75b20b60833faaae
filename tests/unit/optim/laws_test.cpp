// What must hold for every optimizer whatever its formula? Laws in closed form, at the edges of the
// numbers too.
#include "optim/loss_scale.hpp"
#include "optim/norms.hpp"
#include "optim_helpers.hpp"
#include "support/catch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::noise;
using test::require_close;

const std::vector<std::string> kTypes = {"adamw", "adam", "sgd", "lamb", "lars", "lion"};
constexpr std::int64_t kCount = 131;

OptimizerConfig config_of(const std::string& type) {
  OptimizerConfig config;
  config.type = type == "adamw"  ? OptimizerType::adamw
                : type == "adam" ? OptimizerType::adam
                : type == "sgd"  ? OptimizerType::sgd
                : type == "lamb" ? OptimizerType::lamb
                : type == "lars" ? OptimizerType::lars
                                 : OptimizerType::lion;
  config.bias_correction = type == "lamb" ? BiasCorrection::moments : BiasCorrection::on;
  config.eps = default_eps(config.type);
  return config;
}

/// One optimizer with one parameter of its own.
class Single {
 public:
  explicit Single(const OptimizerConfig& config, const at::Tensor& start, ParamGroup group = {})
      : optimizer_(optimizers().make(yaml_name(config.type), config)), groups_{group} {
    const std::vector<std::string_view> names = optimizer_->states();
    shards_ = {test::shard_of(start, {names.begin(), names.end()})};
  }

  /// One step with this gradient; returns the weights.
  const at::Tensor& step(const at::Tensor& grad, double lr, double factor = 1) {
    shards_[0].grad.copy_(grad);
    test::step(*optimizer_, shards_, groups_, {.step = steps_++, .lr = lr, .grad_factor = factor});
    return shards_[0].master;
  }

  [[nodiscard]] const at::Tensor& weights() const { return shards_[0].master; }
  [[nodiscard]] const FlatShard& shard() const { return shards_[0]; }

 private:
  static std::string yaml_name(OptimizerType type) {
    return kTypes[type == OptimizerType::adamw  ? 0U
                  : type == OptimizerType::adam ? 1U
                  : type == OptimizerType::sgd  ? 2U
                  : type == OptimizerType::lamb ? 3U
                  : type == OptimizerType::lars ? 4U
                                                : 5U];
  }

  std::unique_ptr<Optimizer> optimizer_;
  std::vector<FlatShard> shards_;
  std::vector<ParamGroup> groups_;
  std::int64_t steps_ = 0;
};

at::Tensor constant(double value, at::ScalarType dtype = at::kDouble) {
  return at::full({kCount}, value, at::dtype(dtype));
}

bool all_finite(const at::Tensor& values) {
  return values.isfinite().all().item<bool>();
}

}  // namespace

TEST_CASE("without gradient and decay nothing moves", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      INFO(type);
      const at::Tensor start = noise(kCount, 1, dtype);
      Single single(config_of(type), start);
      for (int k = 0; k < 3; ++k) {
        CHECK(at::equal(single.step(at::zeros({kCount}, dtype), 0.1), start));
      }
    }
  }
}

TEST_CASE("a rate of zero moves nothing, but states go on", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const at::Tensor start = noise(kCount, 1, at::kDouble);
    Single single(config_of(type), start, {.weight_decay = 0.1});
    CHECK(at::equal(single.step(noise(kCount, 3, at::kDouble), 0), start));
    bool moved = single.shard().state.empty();
    for (const auto& [name, state] : single.shard().state) {
      moved = moved || state.abs().max().item<double>() > 0;
    }
    // The momentum of lars holds updates that are scaled by their rate.
    CHECK((moved || type == "lars"));
  }
}

TEST_CASE("a step goes against the gradient, and twice the rate is twice the way",
          "[optim][laws]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const at::Tensor start = noise(kCount, 1, at::kDouble);
    const at::Tensor grad = noise(kCount, 4, at::kDouble);
    Single slow(config_of(type), start);
    Single fast(config_of(type), start);
    const at::Tensor way = slow.step(grad, 1e-3) - start;
    const at::Tensor longer = fast.step(grad, 2e-3) - start;
    require_close(way * 2, longer, 1e-9, "way");
    const at::Tensor wrong = (way * grad).gt(0);
    CHECK(wrong.sum().item<std::int64_t>() == 0);
  }
}

TEST_CASE("the factor of gradients is a factor of gradients", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const at::Tensor start = noise(kCount, 1, at::kDouble);
    Single factored(config_of(type), start, {.weight_decay = 0.1});
    Single multiplied(config_of(type), start, {.weight_decay = 0.1});
    for (int k = 0; k < 4; ++k) {
      const at::Tensor grad = noise(kCount, 3 + k, at::kDouble);
      factored.step(grad, 0.01, 0.125);
      multiplied.step(grad * 0.125, 0.01);
    }
    require_close(multiplied.weights(), factored.weights(), 1e-13, "weights");
  }
}

TEST_CASE("a group's share of the rate is a share of the rate", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const at::Tensor start = noise(kCount, 1, at::kDouble);
    Single shared(config_of(type), start, {.lr_scale = 0.25, .weight_decay = 0.1});
    Single direct(config_of(type), start, {.lr_scale = 1, .weight_decay = 0.1});
    for (int k = 0; k < 4; ++k) {
      const at::Tensor grad = noise(kCount, 3 + k, at::kDouble);
      shared.step(grad, 0.04);
      direct.step(grad, 0.01);
    }
    require_close(direct.weights(), shared.weights(), 1e-13, "weights");
  }
}

TEST_CASE("the first step of Adam is the rate, whatever the gradient's size", "[optim][laws]") {
  for (const std::string type : {"adam", "adamw"}) {
    for (const double size : {1e-2, 1.0, 1e6, 1e30}) {
      INFO(type << " " << size);
      Single single(config_of(type), constant(1));
      require_close(constant(1 - 0.01), single.step(constant(size), 0.01), 1e-6, "weights");
      Single down(config_of(type), constant(1));
      require_close(constant(1 + 0.01), down.step(constant(-size), 0.01), 1e-6, "weights");
    }
  }
}

TEST_CASE("a constant gradient moves Adam by the rate every step", "[optim][laws]") {
  OptimizerConfig config = config_of("adamw");
  config.eps = 0;
  Single single(config, constant(5));
  for (int k = 1; k <= 50; ++k) {
    single.step(constant(0.3), 0.01);
    require_close(constant(5 - 0.01 * k), single.weights(), 1e-12, "weights");
  }
}

TEST_CASE("lion moves every weight by the rate, and turns when its mean does", "[optim][laws]") {
  OptimizerConfig config = config_of("lion");
  config.betas = {0.9, 0.5};
  for (const double size : {1e-20, 1.0, 1e20}) {
    INFO(size);
    Single single(config, constant(3));
    require_close(constant(3 - 0.01), single.step(constant(size), 0.01), 1e-12, "first");
    // The mean is +1/2 of the size: 0.9/2 outweighs a tenth of the next gradient, its opposite...
    require_close(constant(3 - 0.02), single.step(constant(-size), 0.01), 1e-12, "second");
    // ... and is -1/4 of it afterwards.
    require_close(constant(3 - 0.01), single.step(constant(-size), 0.01), 1e-12, "third");
  }
}

TEST_CASE("momentum of a constant gradient sums a geometric series", "[optim][laws]") {
  OptimizerConfig config = config_of("sgd");
  config.momentum = 0.5;
  Single single(config, constant(0));
  double velocity = 0;
  double weight = 0;
  for (int k = 1; k <= 20; ++k) {
    velocity = 2 * (1 - std::pow(0.5, k));  // 1 + 1/2 + 1/4 + ...
    weight -= 0.1 * velocity;
    require_close(constant(weight), single.step(constant(1), 0.1), 1e-12, "weights");
  }
  config.nesterov = true;
  Single ahead(config, constant(0));
  require_close(constant(-0.1 * 1.5), ahead.step(constant(1), 0.1), 1e-12, "nesterov");
}

TEST_CASE("decay alone shrinks weights as its kind says", "[optim][laws]") {
  const at::Tensor zeros = constant(0);
  Single decoupled(config_of("adamw"), constant(2), {.weight_decay = 0.5});
  for (int k = 1; k <= 5; ++k) {
    require_close(
        constant(2 * std::pow(1 - 0.1 * 0.5, k)), decoupled.step(zeros, 0.1), 1e-12, "adamw");
  }
  OptimizerConfig plain = config_of("sgd");
  plain.momentum = 0;
  Single coupled(plain, constant(2), {.weight_decay = 0.5});
  for (int k = 1; k <= 5; ++k) {
    require_close(constant(2 * std::pow(1 - 0.1 * 0.5, k)), coupled.step(zeros, 0.1), 1e-12, "sgd");
  }
  Single signed_steps(config_of("lion"), constant(2), {.weight_decay = 0.5});
  for (int k = 1; k <= 5; ++k) {
    require_close(
        constant(2 * std::pow(1 - 0.1 * 0.5, k)), signed_steps.step(zeros, 0.1), 1e-12, "lion");
  }
  // In Adam decay is a gradient, and a gradient's size does not count.
  Single adam(config_of("adam"), constant(2), {.weight_decay = 0.5});
  require_close(constant(2 - 0.1), adam.step(zeros, 0.1), 1e-6, "adam");
}

TEST_CASE("the step of lamb has the size of the weights", "[optim][laws]") {
  for (const double size : {1e-3, 1.0, 1e3}) {
    OptimizerConfig config = config_of("lamb");
    config.trust_clip.reset();
    const at::Tensor start = noise(kCount, 1, at::kDouble) * size;
    Single single(config, start);
    const at::Tensor way = single.step(noise(kCount, 4, at::kDouble), 0.01) - start;
    INFO(size);
    CHECK(way.norm().item<double>() / start.norm().item<double>() == Approx(0.01).epsilon(1e-9));
  }
}

TEST_CASE("the first step of lars is a share of the weights", "[optim][laws]") {
  for (const double size : {1e-3, 1.0, 1e3}) {
    for (const double grad_size : {1e-6, 1.0, 1e6}) {
      OptimizerConfig config = config_of("lars");
      config.trust_coefficient = 0.02;
      config.eps = 0;
      const at::Tensor start = noise(kCount, 1, at::kDouble) * size;
      Single single(config, start);
      const at::Tensor way = single.step(noise(kCount, 4, at::kDouble) * grad_size, 0.5) - start;
      INFO(size << " " << grad_size);
      CHECK(way.norm().item<double>() / start.norm().item<double>() ==
            Approx(0.5 * 0.02).epsilon(1e-9));
    }
  }
}

TEST_CASE("a bound of the trust ratio bounds the step", "[optim][laws]") {
  for (const std::string type : {"lamb", "lars"}) {
    OptimizerConfig config = config_of(type);
    config.trust_coefficient = 1e6;
    config.trust_clip = 0.25;
    const at::Tensor start = noise(kCount, 1, at::kDouble) * 1e4;
    const at::Tensor grad = noise(kCount, 4, at::kDouble);
    Single bounded(config, start);
    Single without(config, start, {.adapt = false});  // its ratio is 1
    const at::Tensor way = bounded.step(grad, 0.01) - start;
    const at::Tensor full = without.step(grad, 0.01) - start;
    INFO(type);
    require_close(full * 0.25, way, 1e-7, "way");
  }
}

TEST_CASE("tiny and huge gradients leave weights and states finite", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    for (const double size : {1e-30, 1e-18, 1e18}) {  // their squares: nothing, or near the largest
      INFO(type << " " << size);
      const at::Tensor start = noise(kCount, 1, at::kFloat);
      Single single(config_of(type), start, {.weight_decay = 0.01});
      const at::Tensor grad = noise(kCount, 4, at::kFloat) * size;
      for (int k = 0; k < 3; ++k) {
        single.step(grad, 1e-3);
      }
      CHECK(all_finite(single.weights()));
      for (const auto& [name, state] : single.shard().state) {
        INFO(name);
        CHECK(all_finite(state));
      }
      // Only sgd goes as far as the gradient says.
      const double way = (single.weights() - start).abs().max().item<double>();
      CHECK((type == "sgd" && size > 1 ? way > 1e14 : way < 1));
    }
  }
}

TEST_CASE("squares beyond fp32 stop a weight of adam, and leave it finite", "[optim][laws]") {
  for (const std::string type : {"adamw", "adam", "lamb"}) {
    INFO(type);
    const at::Tensor start = noise(kCount, 1, at::kFloat);
    Single single(config_of(type), start);
    for (int k = 0; k < 3; ++k) {
      single.step(constant(1e25, at::kFloat), 1e-3);
    }
    CHECK(single.shard().state.at("exp_avg_sq").isinf().all().item<bool>());
    CHECK(all_finite(single.shard().state.at("exp_avg")));
    CHECK(at::equal(single.weights(), start));
  }
}

TEST_CASE("fp32 and fp64 take the same way", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    Single narrow(config_of(type), noise(kCount, 1, at::kFloat), {.weight_decay = 0.1});
    Single wide(
        config_of(type), noise(kCount, 1, at::kFloat).to(at::kDouble), {.weight_decay = 0.1});
    for (int k = 0; k < 20; ++k) {
      const at::Tensor grad = noise(kCount, 3 + k, at::kFloat);
      narrow.step(grad, 1e-2);
      wide.step(grad.to(at::kDouble), 1e-2);
    }
    INFO(type);
    require_close(wide.weights(), narrow.weights(), 2e-5, "weights");
  }
}

TEST_CASE("two parameters in one shard do not see each other", "[optim][laws]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const auto optimizer = optimizers().make(type, config_of(type));
    const std::vector<std::string_view> names = optimizer->states();
    const std::vector<std::string> states(names.begin(), names.end());
    std::vector<FlatShard> both = {test::shard_of(noise(200, 1, at::kDouble), states)};
    both[0].segments = {{.param = 0, .begin = 0, .end = 70, .offset = 0},
                        {.param = 1, .begin = 0, .end = 130, .offset = 70}};
    const at::Tensor grad = noise(200, 5, at::kDouble);
    both[0].grad.copy_(grad);
    const std::vector<ParamGroup> groups = {{.weight_decay = 0.1}, {.lr_scale = 0.5}};
    test::step(*optimizer, both, groups, {.step = 0, .lr = 0.01});
    for (const Segment& segment : both[0].segments) {
      const std::int64_t length = segment.end;
      Single alone(config_of(type),
                   noise(200, 1, at::kDouble).narrow(0, segment.offset, length),
                   groups[static_cast<std::size_t>(segment.param)]);
      require_close(alone.step(grad.narrow(0, segment.offset, length), 0.01),
                    both[0].master.narrow(0, segment.offset, length),
                    1e-14,
                    "weights");
    }
  }
}

TEST_CASE("clipping never makes a gradient larger, and keeps its norm within bounds",
          "[optim][laws]") {
  for (const double bound : {1e-3, 0.5, 1.0, 100.0}) {
    for (double norm = 1e-8; norm < 1e8; norm *= 3) {
      const double factor = clip_factor(norm, bound);
      CHECK(factor <= 1);
      CHECK(factor > 0);
      CHECK(norm * factor <= bound);
      CHECK((norm > bound * 0.99 || factor == 1));
    }
    CHECK(clip_factor(0, bound) == 1);
    CHECK(clip_factor(std::numeric_limits<double>::infinity(), bound) == 0);
  }
  CHECK(clip_factor(1e30, 0) == 1);
}

}  // namespace colossal
