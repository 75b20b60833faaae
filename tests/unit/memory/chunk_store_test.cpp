// Are parameters views of their chunks, do gradients add up in place, and is every misuse caught?
#include "memory/chunk_store.hpp"

#include "memory/swap_buffer.hpp"
#include "memory_helpers.hpp"
#include "support/close.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::error_of;
using test::plain_options;
using test::require_close;
using test::spec_of;

Config config_of(Precision precision) {
  Config config;
  config.train.precision = precision;
  return config;
}

/// Three blocks: embed [6,4]; body [5] and [70]; head tied to embed. Chunks of 64 elements.
struct Model {
  explicit Model(Precision precision = Precision::fp64)
      : context(config_of(precision)),
        embed(spec_of("embed", {6, 4})),
        body(spec_of("body", {5})),
        large(spec_of("large", {70})),
        head(spec_of("head", {6, 4}, "embed")) {
    const auto planner = chunk_planners().make("0", {.chunk_bytes = 64 * 8, .item_bytes = 8});
    const std::vector<ChunkStore::Block> blocks = {
        {"first", {&embed}}, {"middle", {&body, &large}}, {"last", {&head}}};
    store = std::make_unique<ChunkStore>(blocks,
                                         *planner,
                                         std::array<std::string_view, 2>{"m", "v"},
                                         plain_options(context.dtype()),
                                         context);
  }

  void acquire_all() const {
    for (const int block : {0, 1, 2}) {
      store->acquire(block, BlockUse::backward);
    }
  }

  ParallelContext context;
  Parameter embed;
  Parameter body;
  Parameter large;
  Parameter head;
  std::unique_ptr<ChunkStore> store;
};

TEST_CASE("parameters are leaves inside their chunk, with the initial values of their names",
          "[memory]") {
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    const Model model(precision);
    model.acquire_all();
    for (const FlatShard& shard : model.store->shards()) {
      CHECK(shard.master.scalar_type() == model.context.dtype());
      for (const Segment& segment : shard.segments) {
        const Parameter& parameter =
            *model.store->parameters()[static_cast<std::size_t>(segment.param)];
        const at::Tensor& leaf = parameter.tensor();
        CHECK((leaf.is_leaf() && leaf.requires_grad() && leaf.is_contiguous()));
        CHECK(leaf.sizes() == at::IntArrayRef(parameter.spec().shape));
        CHECK(segment.end - segment.begin == leaf.numel());
        const auto offset = static_cast<std::ptrdiff_t>(segment.offset) * leaf.element_size();
        CHECK(leaf.data_ptr() == static_cast<char*>(shard.master.data_ptr()) + offset);
        CHECK(leaf.grad().data_ptr() == static_cast<char*>(shard.grad.data_ptr()) + offset);
        at::Tensor expected = at::zeros(leaf.sizes(), leaf.options());
        initialize(expected, parameter.spec(), model.context);
        CHECK(expected.equal(leaf.detach()));
      }
    }
  }
}

TEST_CASE("every owner has one segment; states are zero and as long as the master", "[memory]") {
  const Model model;
  std::vector<int> seen(model.store->parameters().size(), 0);
  CHECK(seen.size() == 3);
  for (const FlatShard& shard : model.store->shards()) {
    CHECK(shard.state.size() == 2);
    for (const auto& [name, state] : shard.state) {
      CHECK(state.sizes() == shard.master.sizes());
      CHECK(state.abs().max().item<double>() == 0);
    }
    for (const Segment& segment : shard.segments) {
      ++seen[static_cast<std::size_t>(segment.param)];
    }
  }
  CHECK(seen == std::vector<int>{1, 1, 1});
}

TEST_CASE("writing the chunk changes the parameter without disturbing autograd", "[memory]") {
  const Model model;
  model.acquire_all();
  const at::Tensor loss = at::mul(model.body.tensor(), model.body.tensor()).sum();
  for (const FlatShard& shard : model.store->shards()) {
    shard.master.fill_(2);  // as an optimizer would, before this graph's backward
  }
  CHECK(model.body.tensor().sum().item<double>() == 10);
  model.store->begin_gradients();
  CHECK_NOTHROW(loss.backward());
  CHECK(model.body.tensor().grad().sum().item<double>() == 20);
}

TEST_CASE(
    "gradients add up in place over uses and micro-batches; a tied gradient is the sum of both "
    "uses",
    "[memory]") {
  const Model model;
  ChunkStore& store = *model.store;
  model.acquire_all();
  store.begin_gradients();
  const void* const place = model.embed.tensor().grad().data_ptr();
  for (const bool last : {false, true}) {
    at::mul(model.head.tensor(), 3).sum().backward();
    store.gradients_ready(2, last);
    at::mul(model.body.tensor(), 5).sum().backward();
    at::sum(model.large.tensor()).backward();
    store.gradients_ready(1, last);
    at::sum(model.embed.tensor()).backward();
    store.gradients_ready(0, last);
  }
  store.finish_gradients();
  CHECK(model.embed.tensor().grad().data_ptr() == place);
  require_close(
      at::full({6, 4}, 8.0, at::kDouble), model.embed.tensor().grad(), 0, "tied gradient");
  require_close(
      at::full({5}, 10.0, at::kDouble), model.body.tensor().grad(), 0, "accumulated gradient");
  double sum = 0;
  for (const FlatShard& shard : store.shards()) {
    sum += shard.grad.sum().item<double>();  // padding must not count
  }
  CHECK(sum == 24 * 8 + 5 * 10 + 70 * 2);
  store.publish();
  store.begin_gradients();
  CHECK(model.embed.tensor().grad().abs().max().item<double>() == 0);
}

TEST_CASE("parameters are valid between acquire and the matching release only", "[memory]") {
  const Model model;
  ChunkStore& store = *model.store;
  const auto available = [](const Parameter& parameter) {
    try {
      (void)parameter.tensor();
    } catch (const Error& error) {
      CHECK(error.id() == "parameter-unavailable");
      return false;
    }
    return true;
  };
  CHECK_FALSE(available(model.embed));
  store.acquire(0, BlockUse::forward);
  store.acquire(0, BlockUse::forward);
  CHECK(available(model.embed));
  CHECK_FALSE(available(model.head));
  store.release(0);
  CHECK(available(model.embed));
  store.release(0);
  CHECK_FALSE(available(model.embed));
  const Error error = error_of([&] { store.release(0); });
  CHECK(error.id() == "chunk-state");
  CHECK_THAT(error.what(),
             Catch::Matchers::Contains("'first'") && Catch::Matchers::Contains("'embed'"));
}

/// Steps of a chunk's life, by letter: b begin, 0-2 last report of a block, x early report of block
/// 1, f finish, p publish, a abandon.
void play(ChunkStore& store, const std::string& script) {
  for (const char c : script) {
    switch (c) {
      case 'b':
        store.begin_gradients();
        break;
      case 'x':
        store.gradients_ready(1, false);
        break;
      case 'f':
        store.finish_gradients();
        break;
      case 'p':
        store.publish();
        break;
      case 'a':
        store.abandon_gradients();
        break;
      default:
        store.gradients_ready(c - '0', true);
    }
  }
}

TEST_CASE("legal sequences of a step pass", "[memory]") {
  for (const char* script : {"p", "b210fp", "bxx210fpb210fp", "b210fb210f", "b012f", "b210fpp"}) {
    INFO(script);
    CHECK_NOTHROW(play(*Model().store, script));
  }
}

TEST_CASE("a step that an error has ended can begin again", "[memory]") {
  for (const char* script :
       {"bab210fp", "b2ab210fp", "b21ab210fp", "bxab210fp", "b210ab210fp", "b210fab210fp", "ap"}) {
    INFO(script);
    CHECK_NOTHROW(play(*Model().store, script));
  }
  const Model model;
  ChunkStore& store = *model.store;
  store.begin_gradients();
  store.acquire(0, BlockUse::backward);
  at::sum(model.embed.tensor()).backward();
  store.abandon_gradients();
  CHECK(error_of([&] { (void)model.embed.tensor(); }).id() == "parameter-unavailable");
  store.begin_gradients();
  store.acquire(0, BlockUse::backward);
  CHECK(model.embed.tensor().grad().abs().max().item<double>() == 0);
}

TEST_CASE("illegal transitions are refused", "[memory]") {
  // report before begin, after the last one, twice; begin, publish and finish while gradients are
  // under way
  for (const char* script :
       {"2", "x", "b11", "b1x", "bb", "b2b", "bp", "b210p", "f", "b21f", "b210ff", "b210f2"}) {
    INFO(script);
    CHECK(error_of([&] { play(*Model().store, script); }).id() == "chunk-state");
  }
  CHECK_THAT(error_of([] { play(*Model().store, "b20f"); }).what(),
             Catch::Matchers::Contains("block 'middle' never"));
  CHECK_THAT(error_of([] { play(*Model().store, "1"); }).what(),
             Catch::Matchers::Contains("are empty"));
}

TEST_CASE("a parameter that no backward reached is named, or its gradient is zero", "[memory]") {
  for (const bool zero : {false, true}) {
    const ParallelContext context(config_of(Precision::fp64));
    Parameter used(spec_of("used", {3}));
    Parameter idle(spec_of("idle", {4}));
    const auto planner = chunk_planners().make("2", {.chunk_bytes = 1024, .item_bytes = 8});
    const std::vector<ChunkStore::Block> blocks = {{"block", {&used, &idle}}};
    StoreOptions options = plain_options(at::kDouble);
    options.unused_is_zero = zero;
    ChunkStore store(blocks, *planner, {}, options, context);
    store.begin_gradients();
    store.acquire(0, BlockUse::backward);
    at::sum(used.tensor()).backward();
    store.gradients_ready(0, true);
    store.release(0);
    if (zero) {
      CHECK_NOTHROW(store.finish_gradients());
      CHECK(store.shards().front().grad.sum().item<double>() == 3);
      continue;
    }
    const Error error = error_of([&] { store.finish_gradients(); });
    CHECK(error.id() == "param-no-gradient");
    CHECK_THAT(error.what(), Catch::Matchers::Contains("'idle'"));
  }
}

TEST_CASE("a saved view is right again after its buffer was empty, at another address",
          "[memory]") {
  SwapBuffer buffer(8, at::kDouble, at::kCPU);
  const at::Tensor view = buffer.tensor().narrow(0, 2, 4).view({2, 2});
  at::Tensor first = allocate_flat(64, at::kByte, at::kCPU);
  at::Tensor second = allocate_flat(64, at::kByte, at::kCPU);
  buffer.fill(first);
  buffer.tensor().fill_(7);
  CHECK(view.sum().item<double>() == 28);
  CHECK(error_of([&] { buffer.fill(second); }).id() == "swap-buffer");
  (void)buffer.empty();
  first.zero_();
  buffer.fill(second);
  buffer.tensor().fill_(1);
  CHECK(view.sum().item<double>() == 4);
  CHECK(first.sum().item<std::int64_t>() == 0);
}

TEST_CASE("the pool keeps blocks of one size and gives back what does not fit", "[memory]") {
  BlockPool pool(at::kCPU, true);
  at::Tensor block = pool.get(128);
  const void* const place = block.data_ptr();
  pool.put(std::move(block));
  CHECK(pool.get(128).data_ptr() == place);
  CHECK(pool.bytes() == 128);
  CHECK(pool.peak_bytes() == 128);
}

TEST_CASE("a block that does not exist is refused", "[memory]") {
  const Model model;
  CHECK(error_of([&] { model.store->acquire(3, BlockUse::forward); }).id() == "block-index");
  CHECK(error_of([&] { model.store->release(-1); }).id() == "block-index");
}

TEST_CASE("a block without parameters needs no report", "[memory]") {
  const ParallelContext context(config_of(Precision::fp32));
  Parameter weight(spec_of("w", {3}));
  const auto planner = chunk_planners().make("0", {.chunk_bytes = 1024, .item_bytes = 4});
  const std::vector<ChunkStore::Block> blocks = {{"with", {&weight}}, {"without", {}}};
  ChunkStore store(blocks, *planner, {}, plain_options(context.dtype()), context);
  store.begin_gradients();
  store.gradients_ready(0, true);
  CHECK_NOTHROW(store.finish_gradients());
  CHECK(store.shards().front().state.empty());
}

TEST_CASE("memory that does not exist is an error of its own", "[memory]") {
  const ParallelContext context(config_of(Precision::fp32));
  Parameter weight(spec_of("huge", {std::int64_t{1} << 55}));
  const auto planner = chunk_planners().make("0", {.chunk_bytes = 1024, .item_bytes = 4});
  const std::vector<ChunkStore::Block> blocks = {{"only", {&weight}}};
  const Error error =
      error_of([&] { ChunkStore(blocks, *planner, {}, plain_options(context.dtype()), context); });
  CHECK(error.id() == "out-of-memory");
  CHECK(error.exit_code() == 6);
  CHECK_THAT(error.what(), Catch::Matchers::Contains("144115188075855872 bytes"));
}

TEST_CASE("a budget that several blocks exceed is told by the one that needs most", "[memory]") {
  const ParallelContext context(config_of(Precision::fp32));
  Parameter small(spec_of("small", {64}));
  Parameter large(spec_of("large", {256}));
  Parameter middle(spec_of("middle", {128}));
  const std::vector<ChunkStore::Block> blocks = {
      {"first", {&small}}, {"second", {&large}}, {"third", {&middle}}};
  const auto build = [&](std::int64_t budget) {
    ChunkPlannerRequest request{.chunk_bytes = 64 * 4, .item_bytes = 4};
    request.gemini.const_budget = budget;
    request.gemini.chunk_size = 64 * 4;
    const auto planner = chunk_planners().make("const", request);
    ChunkStore(blocks, *planner, {}, plain_options(context.dtype()), context);
  };
  for (const std::int64_t budget : {64, 64 * 4, 255 * 4}) {  // too little for 3, for 2 and for 1
    const Error error = error_of([&] { build(budget); });
    CHECK(error.id() == "budget-too-small");
    CHECK_THAT(error.what(),
               Catch::Matchers::StartsWith("block 'second' needs 1024 bytes") &&
                   Catch::Matchers::EndsWith("fix   parallel.gemini.const_budget: 1024"));
  }
  CHECK_NOTHROW(build(1024));  // as it was told
}

}  // namespace
}  // namespace colossal
