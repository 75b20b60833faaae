// Do updates on a GPU have the bits of those on the CPU, for every optimizer and combination of
// types, wherever parameters lie in a shard?
#include "config/load.hpp"
#include "optim/detail/cuda/squares.hpp"
#include "optim/norms.hpp"
#include "support/gpu.hpp"
#include "unit/optim/optim_helpers.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::kGpu;
using test::noise;
using test::require_close;

struct Types {
  at::ScalarType master;
  at::ScalarType grad;
  std::optional<at::ScalarType> working;
  at::ScalarType state;
};

std::vector<Types> all_types() {
  std::vector<Types> all;
  for (const at::ScalarType master : {at::kFloat, at::kDouble}) {
    for (const at::ScalarType grad : {master, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType state : {master, at::kBFloat16}) {
        all.push_back({master, grad, {}, state});
        all.push_back({master, grad, at::kBFloat16, state});
        all.push_back({master, grad, at::kHalf, state});
      }
    }
  }
  return all;
}

/// Optimizers with and without what changes their loops.
std::vector<OptimizerConfig> configs() {
  std::vector<OptimizerConfig> all;
  const auto add = [&](OptimizerType type, const auto& change) {
    OptimizerConfig config;
    config.type = type;
    config.betas = {0.8, 0.95};
    config.eps = 1e-6;
    if (type == OptimizerType::lamb) {
      config.bias_correction = BiasCorrection::moments;
    }
    change(config);
    all.push_back(config);
  };
  const auto nothing = [](OptimizerConfig&) {};
  const auto inside = [](OptimizerConfig& config) { config.eps_inside_sqrt = true; };
  const auto nesterov = [](OptimizerConfig& config) { config.nesterov = true; };
  const auto plain = [](OptimizerConfig& config) { config.momentum = 0; };
  add(OptimizerType::adamw, nothing);
  add(OptimizerType::adamw, inside);
  add(OptimizerType::adam, nothing);
  add(OptimizerType::sgd, nothing);
  add(OptimizerType::sgd, nesterov);
  add(OptimizerType::sgd, plain);
  add(OptimizerType::lamb, nothing);
  add(OptimizerType::lamb, inside);
  add(OptimizerType::lars, nothing);
  add(OptimizerType::lars, plain);
  add(OptimizerType::lion, nothing);
  return all;
}

/// Parameters that begin anywhere, with padding between them, more of them than one launch takes.
std::vector<Segment> segments() {
  std::vector<Segment> all;
  std::int64_t offset = 0;
  for (int param = 0; param < 60; ++param) {
    const std::int64_t count = param == 7 ? 20'003 : 1 + 13 * param;
    all.push_back({.param = param, .begin = 5, .end = 5 + count, .offset = offset});
    offset += count + param % 3;
  }
  return all;
}

FlatShard shard_of(const Optimizer& optimizer, const Types& types) {
  FlatShard shard;
  shard.segments = segments();
  const std::int64_t count = shard.segments.back().offset + 2000;
  shard.master = noise(count, 1, types.master);
  shard.grad = at::zeros({count}, types.grad);
  for (const std::string_view name : optimizer.states()) {
    shard.state.emplace(name, at::zeros({count}, types.state));
  }
  if (types.working) {
    shard.working = at::zeros({count}, *types.working);
  }
  return shard;
}

/// `shifted`: arrays start where no vector of the hardware may.
at::Tensor moved(const at::Tensor& x, bool shifted) {
  if (!x.defined()) {
    return x;
  }
  const at::Tensor place = at::zeros({x.numel() + 1}, x.options().device(kGpu));
  const at::Tensor copy = place.narrow(0, shifted ? 1 : 0, x.numel());
  copy.copy_(x);
  return copy;
}

FlatShard moved(const FlatShard& shard, bool shifted) {
  FlatShard there = shard;
  there.master = moved(shard.master, shifted);
  there.grad = moved(shard.grad, shifted);
  there.working = moved(shard.working, shifted);
  for (auto& [name, state] : there.state) {
    state = moved(state, shifted);
  }
  return there;
}

std::vector<ParamGroup> groups() {
  std::vector<ParamGroup> all;
  for (std::uint64_t param = 0; param < 60; ++param) {
    all.push_back({.lr_scale = 1 + 0.1 * static_cast<double>(param % 2),
                   .weight_decay = param % 3 == 0 ? 0 : 0.1,
                   .adapt = param % 4 != 0,
                   .key = 1000 + param});
  }
  return all;
}

/// Norms of layers are added in another order than on the CPU, so lamb and lars agree to rounding.
void compare(const at::Tensor& cpu, const at::Tensor& gpu, bool exact, const std::string& what) {
  if (!cpu.defined()) {
    REQUIRE(!gpu.defined());
    return;
  }
  INFO(what);
  if (exact) {
    REQUIRE(at::equal(cpu, gpu.cpu()));
  } else {
    const double step = cpu.scalar_type() == at::kBFloat16 ? 0x1p-7
                        : cpu.scalar_type() == at::kHalf   ? 0x1p-10
                                                           : 2e-6;
    require_close(cpu, gpu, step, what);
  }
}

}  // namespace

TEST_CASE("GPU: updates equal the CPU's", "[cuda][optim]") {
  NEEDS_GPUS(1)
  for (const OptimizerConfig& config : configs()) {
    const std::string name = yaml_word(config.type);
    const auto optimizer = optimizers().make(name, config);
    const bool exact = optimizer->sweeps() == 1;
    for (const Types& types : all_types()) {
      if (config.type == OptimizerType::lion && types.state != types.master) {
        continue;  // no configuration asks for it
      }
      for (const bool shifted : {false, true}) {
        std::vector<FlatShard> cpu = {shard_of(*optimizer, types)};
        std::vector<FlatShard> gpu = {moved(cpu[0], shifted)};
        for (std::int64_t k = 0; k < 3; ++k) {
          const at::Tensor grad =
              noise(cpu[0].master.numel(), static_cast<int>(k) + 3, at::kDouble);
          cpu[0].grad.copy_(grad);
          gpu[0].grad.copy_(cpu[0].grad);
          const StepInfo info{.step = k, .lr = 0.01, .grad_factor = 0.7};
          test::step(*optimizer, cpu, groups(), info);
          test::step(*optimizer, gpu, groups(), info);
        }
        INFO(name << " with " << c10::toString(types.master) << ", " << c10::toString(types.grad)
                  << ", " << c10::toString(types.state));
        compare(cpu[0].master, gpu[0].master, exact, "masters");
        compare(cpu[0].working, gpu[0].working, exact, "working copies");
        for (const auto& [key, state] : cpu[0].state) {
          compare(state, gpu[0].state.at(key), exact, key);
        }
      }
    }
  }
}

TEST_CASE("GPU: shards of both devices in one update", "[cuda][optim]") {
  NEEDS_GPUS(1)
  OptimizerConfig config;
  config.type = OptimizerType::lamb;
  config.bias_correction = BiasCorrection::moments;
  const auto optimizer = optimizers().make("lamb", config);
  const Types types{at::kFloat, at::kFloat, {}, at::kFloat};
  std::vector<FlatShard> cpu = {shard_of(*optimizer, types), shard_of(*optimizer, types)};
  cpu[0].grad.copy_(noise(cpu[0].grad.numel(), 4, at::kFloat));
  cpu[1].grad.copy_(noise(cpu[1].grad.numel(), 5, at::kFloat));
  std::vector<FlatShard> both = {moved(cpu[0], false), cpu[1]};
  both[1].master = cpu[1].master.clone();
  for (auto& [name, state] : both[1].state) {
    state = state.clone();
  }
  test::step(*optimizer, cpu, groups(), {.step = 0, .lr = 0.01});
  test::step(*optimizer, both, groups(), {.step = 0, .lr = 0.01});
  compare(cpu[0].master, both[0].master, false, "masters of the GPU");
  require_close(cpu[1].master, both[1].master, 2e-6, "masters of the CPU");
}

TEST_CASE("GPU: squares of many gradients, wherever they begin", "[cuda][optim]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> parts;
    std::vector<double> exact;
    for (int i = 0; i < 300; ++i) {  // more than two launches take
      const std::int64_t count = i == 7 ? 200'003 : 1 + 29 * i;
      const at::Tensor values = noise(count, i, dtype);
      parts.push_back(moved(values, i % 3 == 1));
      exact.push_back(values.to(at::kDouble).square().sum().item<double>());
    }
    const at::Tensor found = detail::cuda::squares_of(parts).cpu();
    REQUIRE(found.size(0) == 300);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      INFO(c10::toString(dtype) << ", part " << i);
      REQUIRE(found.const_data_ptr<double>()[i] == Approx(exact[i]).epsilon(1e-6));
    }
    REQUIRE(at::equal(found, detail::cuda::squares_of(parts).cpu()));
  }
}

TEST_CASE("GPU: squares of large and of tiny gradients are in the range of the CPU's",
          "[cuda][optim]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const double size : {0x1p90, 0x1p-90}) {  // squares that fp32 cannot hold
      for (const std::int64_t count : {5, 100'003}) {
        for (const bool shifted : {false, true}) {
          const at::Tensor values = noise(count, 3, at::kDouble).mul(size).to(dtype);
          const double exact = values.to(at::kDouble).square().sum().item<double>();
          const std::vector<at::Tensor> parts = {moved(values, shifted)};
          INFO(c10::toString(dtype) << " of the size of " << size << ", " << count);
          REQUIRE(exact > 0);
          CHECK(detail::cuda::squares_of(parts).item<double>() == Approx(exact).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("GPU: the gradient norm counts every element once and no padding", "[cuda][optim]") {
  NEEDS_GPUS(1)
  const auto norm_of = [](const std::vector<FlatShard>& shards) {
    ParamSpec spec;
    spec.name = "weight";
    Parameter parameter(spec);
    const std::vector<Parameter*> parameters = {&parameter};
    return global_grad_norm(shards, parameters, ParallelContext(Config{}));
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    std::vector<FlatShard> shards;
    for (const std::int64_t count : {7, 100'003, 31}) {
      FlatShard& shard = shards.emplace_back();
      shard.grad = at::zeros({count + 64}, at::TensorOptions(dtype).device(kGpu));
      shard.grad.fill_(1000);
      shard.grad.narrow(0, 3, count).fill_(0.5);
      shard.segments = {{.param = 0, .begin = 0, .end = count, .offset = 3}};
    }
    CHECK(norm_of(shards) == Approx(0.5 * std::sqrt(100'041)).epsilon(1e-12));
    CHECK(norm_of(shards) == norm_of(shards));
    shards[1].grad.narrow(0, 77, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK(std::isnan(norm_of(shards)));
  }
}

}  // namespace colossal
