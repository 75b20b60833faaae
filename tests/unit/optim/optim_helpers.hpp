// What do the tests of optimizers share? Shards without a store, and the golden gradients.
#pragma once

#include "optim/optimizer.hpp"
#include "support/close.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
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

/// Runs the three steps of the table of optimizers-and-recipes 1.4 (lr 0.01, weight decay 0.1) and
/// compares the weights after the first and the third.
inline void check_golden(Optimizer& optimizer,
                         const std::vector<double>& after_1,
                         const std::vector<double>& after_3) {
  const std::vector<std::string_view> names = optimizer.states();
  std::vector<FlatShard> shards = {
      shard_of(at::tensor({0.5, -0.25, 1.0, 2.0}, at::kDouble), {names.begin(), names.end()})};
  const std::vector<at::Tensor> grads = {at::tensor({.1, -.2, .3, .4}, at::kDouble),
                                         at::tensor({.2, .1, -.3, 0.}, at::kDouble),
                                         at::tensor({-.1, .05, .2, .1}, at::kDouble)};
  const std::vector<ParamGroup> groups = {{.lr_scale = 1, .weight_decay = 0.1}};
  for (std::int64_t step = 0; step < 3; ++step) {
    shards[0].grad.copy_(grads[static_cast<std::size_t>(step)]);
    optimizer.step(shards, groups, {.step = step, .lr = 0.01});
    if (step == 0) {
      require_close(at::tensor(after_1, at::kDouble), shards[0].master, 1e-9, "after step 1");
    }
  }
  require_close(at::tensor(after_3, at::kDouble), shards[0].master, 1e-9, "after step 3");
}

}  // namespace colossal::test
