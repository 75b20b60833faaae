// How long does an AdamW update of a large shard take? One update for each word read from the
// standard input, for scripts/bench/cpu_adam.py.
#include "optim/update.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace colossal {
namespace {

/// Masters and moments of `count` elements, with gradients of 32 or 16 bits.
class Subject {
 public:
  explicit Subject(std::int64_t count)
      : context_(Config{}),
        optimizer_(optimizers().make("adamw", OptimizerConfig{})),
        grad32_(at::full({count}, 1e-3, at::kFloat)),
        grad16_(at::full({count}, 1e-3, at::kBFloat16)),
        working_(at::zeros({count}, at::kBFloat16)) {
    FlatShard& shard = shards_.emplace_back();
    shard.master = at::full({count}, 0.1, at::kFloat);
    for (const std::string_view name : optimizer_->states()) {
      shard.state.emplace(name, at::zeros({count}, at::kFloat));
    }
    shard.segments = {{.param = 0, .begin = 0, .end = count, .offset = 0}};
  }

  /// Seconds of one update.
  double update(bool mixed) {
    shards_[0].grad = mixed ? grad16_ : grad32_;
    shards_[0].working = mixed ? working_ : at::Tensor();
    const std::vector<ParamGroup> groups = {{.lr_scale = 1, .weight_decay = 0.1}};
    const std::vector<Parameter*> parameters = {&parameter_};
    const StepInfo info{.step = step_++, .lr = 1e-3, .grad_factor = 0.5};
    const auto start = std::chrono::steady_clock::now();
    apply_update(
        *optimizer_,
        [&](StateAccess /*access*/, const ShardCall& call) { call(shards_); },
        groups,
        info,
        parameters,
        context_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  ParallelContext context_;
  std::unique_ptr<Optimizer> optimizer_;
  at::Tensor grad32_;
  at::Tensor grad16_;
  at::Tensor working_;
  std::vector<FlatShard> shards_;
  Parameter parameter_{ParamSpec{}};
  std::int64_t step_ = 0;
};

}  // namespace
}  // namespace colossal

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: bench_cpu_adam ELEMENTS THREADS, then lines 'fp32' or 'mixed'\n", stderr);
    return 2;
  }
  at::set_num_threads(std::atoi(argv[2]));
  colossal::Subject subject(std::atoll(argv[1]));
  std::array<char, 16> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), stdin) != nullptr) {
    std::printf("%.6f\n", subject.update(std::strcmp(line.data(), "mixed\n") == 0));
    std::fflush(stdout);
  }
}
