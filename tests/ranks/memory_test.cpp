// Do several ranks sum their gradients to what one process computes, in one order, moving no byte
// too many?
#include "memory/chunk_store.hpp"
#include "memory/device_memory.hpp"
#include "optim/norms.hpp"
#include "optim/update.hpp"
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "unit/memory/memory_helpers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace colossal {
namespace {

constexpr int kBlocks = 3;
constexpr int kSamples = 8;  // of a global batch

using test::spec_of;

Config config_of(int num_ranks) {
  Config config;
  config.train.precision = Precision::fp64;
  config.parallel.data = num_ranks;
  config.optimizer.weight_decay = 0.1;
  return config;
}

/// d(loss of `sample`) / d(parameter): whole numbers, so that sums are exact in any order.
at::Tensor slope(const Parameter& parameter, int sample) {
  const at::Tensor& leaf = parameter.tensor();
  const auto first = static_cast<std::int64_t>(parameter.spec().name.size());
  return at::arange(first, first + leaf.numel(), leaf.options()).mul(sample + 1).view(leaf.sizes());
}

/// Blocks "embed", "body", "head" (tied to embed), in chunks of 64 elements.
struct Model {
  explicit Model(const ParallelContext& parallel)
      : context(parallel),
        embed(spec_of("embed", {6, 4})),
        body(spec_of("body", {100})),
        scale(spec_of("scale", {5})),
        head(spec_of("head", {6, 4}, "embed")) {
    const auto planner = chunk_planners().make("0", {.chunk_bytes = 64 * 8, .item_bytes = 8});
    blocks = {{"embed", {&embed}}, {"body", {&body, &scale}}, {"head", {&head}}};
    store = std::make_unique<ChunkStore>(
        blocks, *planner, optimizer->states(), test::plain_options(at::kDouble), context);
    for (int block = 0; block < kBlocks; ++block) {
      store->acquire(block, BlockUse::backward);
    }
  }

  /// Backward of one block for one sample: the linear loss sum(slope * parameter).
  void backward(int block, int sample) const {
    for (const Parameter* parameter : blocks[static_cast<std::size_t>(block)].parameters) {
      at::mul(parameter->tensor(), slope(*parameter, sample)).sum().backward();
    }
  }

  /// This rank's samples of a global batch, one micro-batch each; the gradients are then summed
  /// over all ranks.
  void accumulate(int rank, int num_ranks) const {
    store->begin_gradients();
    for (int sample = rank; sample < kSamples; sample += num_ranks) {
      for (int block = kBlocks - 1; block >= 0; --block) {
        backward(block, sample);
        store->gradients_ready(block, sample + num_ranks >= kSamples);
      }
    }
    store->finish_gradients();
  }

  const ParallelContext& context;
  std::unique_ptr<Optimizer> optimizer = optimizers().make("adamw", config_of(1).optimizer);
  Parameter embed;
  Parameter body;
  Parameter scale;
  Parameter head;
  std::vector<ChunkStore::Block> blocks;
  std::unique_ptr<ChunkStore> store;
};

/// Calls and bytes of all-reduce on the data group so far.
CommCounter all_reduces(const ParallelContext& context) {
  for (const CommCounter& counter : context.comm(data_axes()).counters()) {
    if (counter.label == "all_reduce") {
      return counter;
    }
  }
  return {};
}

std::int64_t gradient_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const ChunkSpec& chunk : model.store->plan().chunks) {
    bytes += chunk.numel * 8;
  }
  return bytes;
}

void check_gradient_sums(const test::RankContext& ctx) {
  const ParallelContext context(config_of(ctx.size()), ctx.world());
  const Model model(context);
  const CommCounter before = all_reduces(context);
  model.accumulate(ctx.rank(), ctx.size());
  constexpr int kSum = kSamples * (kSamples + 1) / 2;
  CHECK(at::equal(model.body.tensor().grad(), slope(model.body, 0) * kSum));
  CHECK(at::equal(model.scale.tensor().grad(), slope(model.scale, 0) * kSum));
  CHECK(at::equal(model.embed.tensor().grad(),
                  (slope(model.embed, 0) + slope(model.head, 0)) * kSum));
  const CommCounter after = all_reduces(context);
  CHECK(after.calls - before.calls == std::ssize(model.store->plan().chunks));
  CHECK(after.bytes - before.bytes == gradient_bytes(model));
}

RANKS_TEST_CASE("two ranks sum gradients exactly, once per chunk and step", "[memory]", 2) {
  check_gradient_sums(ctx);
}

RANKS_TEST_CASE("four ranks sum gradients exactly, once per chunk and step", "[memory]", 4) {
  check_gradient_sums(ctx);
}

RANKS_TEST_CASE("a chunk is reduced as soon as it is complete, before later blocks report",
                "[memory]",
                2) {
  const ParallelContext context(config_of(2), ctx.world());
  const Model model(context);
  REQUIRE(model.store->plan().chunks.size() == 3);  // scale; body; embed with head
  const std::int64_t before = all_reduces(context).calls;
  const auto launched = [&] { return all_reduces(context).calls - before; };
  model.store->begin_gradients();
  model.store->gradients_ready(2, true);
  CHECK(launched() == 0);  // head's memory is embed's
  model.store->gradients_ready(1, false);
  CHECK(launched() == 0);  // not the last micro-batch
  model.store->gradients_ready(1, true);
  CHECK(launched() == 2);
  model.store->gradients_ready(0, true);
  CHECK(launched() == 3);
  model.store->finish_gradients();
}

RANKS_TEST_CASE("ranks may report blocks in different orders: chunks go in plan order",
                "[memory]",
                2) {
  const ParallelContext context(config_of(2), ctx.world());
  const Model model(context);
  model.store->begin_gradients();
  const std::array<int, 3> order = ctx.rank() == 0 ? std::array{2, 1, 0} : std::array{0, 2, 1};
  for (const int block : order) {
    model.backward(block, 0);
    model.store->gradients_ready(block, true);
  }
  model.store->finish_gradients();
  CHECK(at::equal(model.body.tensor().grad(), slope(model.body, 0) * 2));
  CHECK(at::equal(model.scale.tensor().grad(), slope(model.scale, 0) * 2));
}

/// Final weights after five AdamW steps with clipping.
std::vector<at::Tensor> train(const Model& model, int rank, int num_ranks) {
  const std::vector<ParamGroup> groups(model.store->parameters().size(), ParamGroup{1, 0.1});
  for (std::int64_t step = 0; step < 5; ++step) {
    model.accumulate(rank, num_ranks);
    const double norm =
        global_grad_norm(model.store->shards(), model.store->parameters(), model.context);
    apply_update(
        *model.optimizer,
        [&](StateAccess /*access*/, const ShardCall& call) { call(model.store->shards()); },
        groups,
        {.step = step, .lr = 0.01, .grad_factor = clip_factor(norm, 1)},
        model.store->parameters(),
        model.context);
    model.store->publish();
  }
  std::vector<at::Tensor> weights;
  for (const Parameter* parameter : model.store->parameters()) {
    weights.push_back(parameter->tensor().detach());
  }
  return weights;
}

RANKS_TEST_CASE("training on two ranks equals training in one process", "[memory]", 2) {
  const ParallelContext context(config_of(2), ctx.world());
  const ParallelContext alone(config_of(1));
  const Model model(context);
  const Model reference(alone);
  const std::vector<at::Tensor> weights = train(model, ctx.rank(), 2);
  const std::vector<at::Tensor> expected = train(reference, 0, 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CHECK(at::equal(weights[i], expected[i]));  // whole-number gradients: no rounding to differ in
  }
}

/// Threads that leave no core to those that communicate.
class BusyMachine {
 public:
  BusyMachine() {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyMachine() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  BusyMachine(const BusyMachine&) = delete;
  BusyMachine& operator=(const BusyMachine&) = delete;

 private:
  static constexpr int kThreads = 3;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Seen as a plan 9.8 % below the peak: Gloo's thread kept the gradient's copy after the reduction.
RANKS_TEST_CASE(
    "copies of gradients are gone when their reductions have ended, also on a busy machine",
    "[memory]",
    2) {
  constexpr std::int64_t kNumel = 50'000;
  constexpr int kNumBlocks = 8;
  const ParallelContext context(config_of(2), ctx.world());
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<ChunkStore::Block> blocks;
  for (int i = 0; i < kNumBlocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    parameters.push_back(std::make_unique<Parameter>(spec_of(name, {kNumel})));
    blocks.push_back({name, {parameters.back().get()}});
  }
  StoreOptions options = test::plain_options(at::kBFloat16);
  options.master = options.reduce = options.state = at::kFloat;
  count_device_memory(at::kCPU);
  DeviceMemory& memory = device_memory();
  const auto planner = chunk_planners().make("0", {.chunk_bytes = kNumel * 2, .item_bytes = 2});
  ChunkStore store(blocks, *planner, {}, options, context);
  REQUIRE(store.plan().chunks.size() == kNumBlocks);
  const std::int64_t before = memory.use().current;
  std::int64_t most = 0;
  int late = 0;
  const BusyMachine busy;
  for (int step = 0; step < 40; ++step) {
    memory.reset_peak();
    store.begin_gradients();
    for (int block = kNumBlocks - 1; block >= 0; --block) {
      store.acquire(block, BlockUse::backward);
      store.gradients_ready(block, true);
      store.release(block);
    }
    store.finish_gradients();
    most = std::max(most, memory.use().peak - before);
    late += memory.use().current == before ? 0 : 1;
    store.publish();
  }
  CHECK(most == max_reducing(store.plan(), options) * store.plan().chunks[0].numel * 4);
  CHECK(late == 0);
}

}  // namespace
}  // namespace colossal
