// What do the tests of optimizers share? Shards without a store, and the golden gradients.
#pragma once

#include "optim/update.hpp"
#include "support/close.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace colossal::test {

/// A shard that holds one parameter, with zero gradient and states.
inline FlatShard shard_of(const at::Tensor& master, const std::vector<std::string>& states) {
  FlatShard shard;
  shard.master = master.clone();
  shard.grad = at::zeros_like(master);
  for (const std::string& name : states) {
    shard.state[name] = at::zeros_like(master);
  }
  shard.segments = {{.param = 0, .begin = 0, .end = master.numel(), .offset = 0}};
  return shard;
}

inline at::Tensor noise(std::int64_t count, int seed, at::ScalarType dtype) {
  at::Tensor values = at::empty({count}, at::kDouble);
  for (std::int64_t i = 0; i < count; ++i) {
    values.data_ptr<double>()[i] = std::sin(0.37 * static_cast<double>(i * (seed + 2)) + seed);
  }
  return values.to(dtype);
}

/// One update of the shards of a single process. `one_by_one`: each shard in a call of its own.
inline void step(Optimizer& optimizer,
                 std::span<FlatShard> shards,
                 std::span<const ParamGroup> groups,
                 const StepInfo& info,
                 bool one_by_one = false) {
  const std::vector<std::unique_ptr<Parameter>> parameters = [&] {
    std::vector<std::unique_ptr<Parameter>> made;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      made.push_back(std::make_unique<Parameter>(ParamSpec{}));
    }
    return made;
  }();
  std::vector<Parameter*> pointers;
  for (const auto& parameter : parameters) {
    pointers.push_back(parameter.get());
  }
  const ShardVisitor visit = [&](StateAccess /*access*/, const ShardCall& call) {
    if (!one_by_one) {
      call(shards);
      return;
    }
    for (FlatShard& shard : shards) {
      call({&shard, 1});
    }
  };
  apply_update(optimizer, visit, groups, info, pointers, ParallelContext(Config{}));
}

/// Runs the three steps of the table of optimizers-and-recipes 1.4 (weight decay 0.1) and compares
/// the weights after the first and the third.
inline void check_golden(Optimizer& optimizer,
                         const std::vector<double>& after_1,
                         const std::vector<double>& after_3,
                         double lr = 0.01) {
  const std::vector<std::string_view> names = optimizer.states();
  std::vector<FlatShard> shards = {
      shard_of(at::tensor({0.5, -0.25, 1.0, 2.0}, at::kDouble), {names.begin(), names.end()})};
  const std::vector<at::Tensor> grads = {at::tensor({.1, -.2, .3, .4}, at::kDouble),
                                         at::tensor({.2, .1, -.3, 0.}, at::kDouble),
                                         at::tensor({-.1, .05, .2, .1}, at::kDouble)};
  const std::vector<ParamGroup> groups = {{.lr_scale = 1, .weight_decay = 0.1}};
  for (std::int64_t k = 0; k < 3; ++k) {
    shards[0].grad.copy_(grads[static_cast<std::size_t>(k)]);
    test::step(optimizer, shards, groups, {.step = k, .lr = lr});
    if (k == 0) {
      require_close(at::tensor(after_1, at::kDouble), shards[0].master, 1e-9, "after step 1");
    }
  }
  require_close(at::tensor(after_3, at::kDouble), shards[0].master, 1e-9, "after step 3");
}

}  // namespace colossal::test
