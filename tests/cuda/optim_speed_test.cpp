// Is an update as fast as its bytes? Hidden from ordinary runs: cuda_optim_test "[.speed]" prints
// rates; on an H100 less than 2.0 TB/s is an error.
#include "optim/norms.hpp"
#include "support/gpu.hpp"
#include "unit/optim/optim_helpers.hpp"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::kGpu;

constexpr std::int64_t kParams = 148;  // GPT-2 124M has as many, of this size in the mean
constexpr std::int64_t kNumel = 841'216;

FlatShard large_shard(at::ScalarType grad, bool working) {
  FlatShard shard;
  const std::int64_t count = kParams * kNumel;
  const at::TensorOptions fp32 = at::TensorOptions(at::kFloat).device(kGpu);
  shard.master = at::randn({count}, fp32);
  shard.grad = at::randn({count}, fp32).to(grad);
  shard.state["exp_avg"] = at::zeros({count}, fp32);
  shard.state["exp_avg_sq"] = at::zeros({count}, fp32);
  if (working) {
    shard.working = at::zeros({count}, fp32.dtype(at::kBFloat16));
  }
  for (int param = 0; param < kParams; ++param) {
    shard.segments.push_back({.param = param, .begin = 0, .end = kNumel, .offset = param * kNumel});
  }
  return shard;
}

void measure(const std::string& what, double bytes_each, const std::function<void()>& call) {
  constexpr int kCalls = 20;
  call();
  wait_for_device(kGpu);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) {
    call();
  }
  wait_for_device(kGpu);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
  const double rate = bytes_each * static_cast<double>(kParams * kNumel) / seconds / 1e12;
  fmt::print("{:<44} {:8.3f} ms {:6.2f} TB/s\n", what, seconds * 1e3, rate);
  if (survey_gpus().gpus.at(0).name.find("H100") != std::string::npos) {
    CHECK(rate >= 2.0);
  }
}

}  // namespace

TEST_CASE("GPU: rates of updates and of the norm", "[.speed]") {
  NEEDS_GPUS(1)
  const std::vector<ParamGroup> groups(static_cast<std::size_t>(kParams), ParamGroup{});
  OptimizerConfig config;
  config.type = OptimizerType::adamw;
  const auto optimizer = optimizers().make("adamw", config);
  std::vector<FlatShard> wide = {large_shard(at::kFloat, false)};
  std::vector<FlatShard> mixed = {large_shard(at::kBFloat16, true)};
  measure(
      "adamw of fp32", 28, [&] { test::step(*optimizer, wide, groups, {.step = 1, .lr = 1e-3}); });
  measure("adamw of bf16 with fp32 masters", 28, [&] {
    test::step(*optimizer, mixed, groups, {.step = 1, .lr = 1e-3});
  });
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Parameter*> pointers;
  for (std::int64_t i = 0; i < kParams; ++i) {
    parameters.push_back(std::make_unique<Parameter>(ParamSpec{}));
    pointers.push_back(parameters.back().get());
  }
  const ParallelContext context{Config{}};
  measure("norm of fp32 gradients", 4, [&] { (void)global_grad_norm(wide, pointers, context); });
}

}  // namespace colossal
