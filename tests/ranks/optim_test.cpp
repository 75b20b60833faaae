// Are norms and updates of sharded parameters those of whole ones, whatever the borders of the
// shards?
#include "optim/norms.hpp"
#include "optim/update.hpp"
#include "support/close.hpp"
#include "support/ranks.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace colossal {
namespace {

/// Elements of the layers. With 2 ranks and shards of kShard elements the border lies inside layer
/// 1; layer 0 is wholly on rank 0, layer 3 wholly on the last.
constexpr std::array<std::int64_t, 4> kLayers = {101, 333, 7, 150};
constexpr std::int64_t kPadded = 768;  // 591 elements, then padding

at::Tensor values(int seed) {
  at::Tensor all = at::zeros({kPadded}, at::kDouble);
  all.narrow(0, 0, 591).copy_(
      at::sin(at::arange(0, 591, at::kDouble) * (0.37 + 0.1 * seed) + seed));
  return all;
}

/// The part [begin, end) of the flat buffer as a shard that `axes` shard.
FlatShard part(const Optimizer& optimizer, std::int64_t begin, std::int64_t end, AxisSet axes) {
  FlatShard shard;
  shard.master = values(0).narrow(0, begin, end - begin).clone();
  shard.grad = at::zeros_like(shard.master);
  for (const std::string_view name : optimizer.states()) {
    shard.state.emplace(name, at::zeros_like(shard.master));
  }
  shard.shard_axes = axes;
  std::int64_t first = 0;  // of the layer
  for (int layer = 0; layer < std::ssize(kLayers); ++layer) {
    const std::int64_t last = first + kLayers[static_cast<std::size_t>(layer)];
    const std::int64_t from = std::max(first, begin);
    const std::int64_t to = std::min(last, end);
    if (from < to) {
      shard.segments.push_back(
          {.param = layer, .begin = from - first, .end = to - first, .offset = from - begin});
    }
    first = last;
  }
  return shard;
}

/// Weights and last gradient norm after five steps.
struct Result {
  at::Tensor weights;
  double norm = 0;
};

Result train(Optimizer& optimizer,
             std::vector<FlatShard>& shards,
             std::int64_t begin,
             const ParallelContext& context) {
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> parameters;
  for (const std::int64_t count : kLayers) {
    ParamSpec spec;
    spec.shape = count % 3 == 0 ? Shape{count / 3, 3} : Shape{count};
    owned.push_back(std::make_unique<Parameter>(spec));
    parameters.push_back(owned.back().get());
  }
  optimizer.prepare(parameters, context.mesh());
  const std::vector<ParamGroup> groups = {
      {1, 0.1}, {0.5, 0.2}, {.weight_decay = 0, .adapt = false}, {1, 0}};
  Result result;
  for (std::int64_t k = 0; k < 5; ++k) {
    std::int64_t at = begin;
    for (FlatShard& shard : shards) {
      shard.grad.copy_(values(static_cast<int>(k) + 1).narrow(0, at, shard.grad.numel()));
      at += shard.grad.numel();
    }
    result.norm = global_grad_norm(shards, parameters, context);
    apply_update(
        optimizer,
        [&](StateAccess /*access*/, const ShardCall& call) {
          for (FlatShard& shard : shards) {
            call({&shard, 1});
          }
        },
        groups,
        {.step = k, .lr = 0.05, .grad_factor = clip_factor(result.norm, 1)},
        parameters,
        context);
  }
  result.weights = shards.front().master;
  return result;
}

std::vector<std::unique_ptr<Optimizer>> all_optimizers() {
  OptimizerConfig config;
  config.trust_coefficient = 0.1;
  config.trust_clip = 3;
  std::vector<std::unique_ptr<Optimizer>> all;
  for (const std::string_view name : optimizers().names()) {
    all.push_back(optimizers().make(name, config));
  }
  return all;
}

Config config_of(int num_ranks) {
  Config config;
  config.parallel.data = num_ranks;
  return config;
}

/// Each rank trains its part; the result is that of one process with everything.
void check_sharded(const test::RankContext& ctx, const std::vector<std::int64_t>& borders) {
  const ParallelContext context(config_of(ctx.size()), ctx.world());
  const ParallelContext alone(config_of(1));
  const auto rank = static_cast<std::size_t>(ctx.rank());
  for (const auto& optimizer : all_optimizers()) {
    std::vector<FlatShard> whole = {part(*optimizer, 0, kPadded, {})};
    const Result expected = train(*optimizer, whole, 0, alone);
    std::vector<FlatShard> mine = {part(*optimizer, borders[rank], borders[rank + 1], data_axes())};
    const Result result = train(*optimizer, mine, borders[rank], context);
    test::require_relative(expected.norm, result.norm, 1e-12, "norm");
    const at::Tensor same =
        expected.weights.narrow(0, borders[rank], borders[rank + 1] - borders[rank]);
    test::require_close(same, result.weights, 1e-12, "weights");
    CHECK(test::scaled_distance(values(0), expected.weights) > 1e-3);
  }
}

RANKS_TEST_CASE("two ranks with halves of the layers train as one process", "[optim]", 2) {
  check_sharded(ctx, {0, 384, kPadded});
}

RANKS_TEST_CASE("borders may lie anywhere, also in the padding and with nothing behind",
                "[optim]",
                4) {
  check_sharded(ctx, {0, 333, 335, 600, kPadded});
}

RANKS_TEST_CASE("what all ranks hold whole counts once, beside what they share", "[optim]", 2) {
  // Layers 0 and 1 are whole on both ranks, layers 2 and 3 are shared by them.
  const ParallelContext context(config_of(2), ctx.world());
  const ParallelContext alone(config_of(1));
  for (const auto& optimizer : all_optimizers()) {
    std::vector<FlatShard> whole = {part(*optimizer, 0, kPadded, {})};
    const Result expected = train(*optimizer, whole, 0, alone);
    const bool first = ctx.rank() == 0;
    std::vector<FlatShard> mine = {part(*optimizer, 0, 434, {}),
                                   first ? part(*optimizer, 434, 436, data_axes())
                                         : part(*optimizer, 436, kPadded, data_axes())};
    // The second shard of rank 1 begins 2 elements later: its gradients too.
    std::vector<FlatShard> padded = {mine[0]};
    if (!first) {
      padded.push_back(part(*optimizer, 434, 436, data_axes()));
      padded[1].segments.clear();
    }
    padded.push_back(mine[1]);
    const Result result = train(*optimizer, padded, 0, context);
    test::require_relative(expected.norm, result.norm, 1e-12, "norm");
    test::require_close(expected.weights.narrow(0, 0, 434), result.weights, 1e-12, "whole layers");
    const std::int64_t begin = first ? 434 : 436;
    const at::Tensor& shared = padded.back().master;
    test::require_close(expected.weights.narrow(0, begin, shared.numel()), shared, 1e-12, "shared");
  }
}

RANKS_TEST_CASE("layer norms cost one all-reduce of two doubles a parameter", "[optim]", 2) {
  const ParallelContext context(config_of(2), ctx.world());
  const auto bytes = [&] {
    std::int64_t sum = 0;
    for (const CommCounter& counter : context.comm(data_axes()).counters()) {
      sum += counter.bytes;
    }
    return sum;
  };
  const auto update_bytes = [&](const char* name) {
    const auto optimizer = optimizers().make(name, OptimizerConfig{});
    const std::int64_t begin = ctx.rank() == 0 ? 0 : 384;
    std::vector<FlatShard> mine = {part(*optimizer, begin, begin + 384, data_axes())};
    const std::int64_t before = bytes();
    (void)train(*optimizer, mine, begin, context);
    return bytes() - before;
  };
  const std::int64_t norms = update_bytes("adamw");
  const std::int64_t layers = 5 * 2 * 8 * std::ssize(kLayers);
  CHECK(update_bytes("lamb") == norms + layers);
  CHECK(update_bytes("lars") == norms + layers);
  // Two vectors of 101 and 7, matrices of 111 and 50 rows of 3: their rows, columns and squares of
  // weights, then one number each.
  const std::int64_t factors = 5 * 8 * ((101 + 7 + 111 + 3 + 50 + 3 + 4) + 4);
  CHECK(update_bytes("adafactor") == norms + factors);
}

}  // namespace
}  // namespace colossal
