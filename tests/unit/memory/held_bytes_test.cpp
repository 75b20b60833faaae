// Does a store tell what it holds on the device in the categories of its plan?
#include "memory/accounting.hpp"
#include "memory/chunk_store.hpp"
#include "memory/device_memory.hpp"
#include "memory_helpers.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

StoreOptions mixed_options() {
  StoreOptions options = plain_options(at::kBFloat16);
  options.master = options.state = at::kFloat;
  return options;
}

/// Three blocks [64], [128] and [70], each with a chunk of its own, and two states.
struct Held {
  Held(const std::string& policy, const StoreOptions& store_options) : options(store_options) {
    ChunkPlannerRequest request{.chunk_bytes = 64 * 4, .item_bytes = 4};
    request.gemini.chunk_size = 64 * 4;
    request.gemini.offload_optim_frac = 0.5;
    const auto planner = chunk_planners().make(policy, request);
    const std::vector<ChunkStore::Block> blocks = {
        {"first", {&first}}, {"middle", {&middle}}, {"last", {&last}}};
    store = std::make_unique<ChunkStore>(
        blocks, *planner, std::array<std::string_view, 2>{"m", "v"}, options, context);
  }

  /// What the plan expects to stay.
  [[nodiscard]] ChunkBytes expected() const {
    const std::vector<ParamSpec> specs = {first.spec(), middle.spec(), last.spec()};
    const std::vector<std::vector<int>> uses = {{0}, {1}, {2}};
    const auto chunks = chunks_of_blocks(store->plan(), specs, uses);
    return account(
        {.plan = store->plan(), .options = options, .chunks_of_blocks = chunks, .num_states = 2},
        context.mesh());
  }

  StoreOptions options;
  ParallelContext context{Config{}};
  Parameter first{spec_of("first", {64})};
  Parameter middle{spec_of("middle", {128})};
  Parameter last{spec_of("last", {70})};
  std::unique_ptr<ChunkStore> store;
};

TEST_CASE("what a store holds is what its plan expects to stay", "[memory]") {
  for (const StoreOptions& options : {plain_options(at::kFloat), mixed_options()}) {
    for (const std::string policy :
         {"0", "1", "2", "3", "cuda", "cpu", "static", "const", "auto"}) {
      INFO(policy << (options.master == options.compute ? "" : ", mixed"));
      const std::int64_t before = device_memory().use().current;
      const Held model(policy, options);
      const HeldBytes held = model.store->held();
      const ChunkBytes expected = model.expected();
      CHECK(held.weights == expected.weights);
      CHECK(held.grads == expected.grads);
      CHECK(held.optimizer == expected.optimizer);
      CHECK(held.borrowed == 0);
      CHECK(held.total() == device_memory().use().current - before);
    }
  }
}

TEST_CASE("gathered weights and gradients of a micro-batch are borrowed", "[memory]") {
  const Held model("3", plain_options(at::kFloat));
  ChunkStore& store = *model.store;
  const HeldBytes before = store.held();
  store.begin_gradients();
  store.acquire(0, BlockUse::forward);
  CHECK(store.held().borrowed == 64 * 4);
  store.release(0);
  CHECK(store.held().borrowed == 64 * 4);  // the pool keeps it
  store.acquire(1, BlockUse::forward);
  CHECK(store.held().borrowed == 128 * 4);
  const HeldBytes now = store.held();
  CHECK(now.total() == before.total() + 128 * 4);
  CHECK(now.weights == before.weights);
  store.release(1);
}

TEST_CASE("gradients that are lent for a step count as gradients", "[memory]") {
  StoreOptions options = plain_options(at::kFloat);
  options.lend_grads = true;
  const Held model("0", options);
  ChunkStore& store = *model.store;
  CHECK(store.held().grads == 0);
  store.begin_gradients();
  store.acquire(2, BlockUse::backward);
  CHECK(store.held().grads == 128 * 4);  // 70 elements and what fills the chunk
  CHECK(store.held().borrowed == 0);
  at::mul(model.last.tensor(), 2).sum().backward();
  store.release(2);
  store.abandon_gradients();
  store.drop_gradients();
  CHECK(store.held().grads == 0);
}

}  // namespace
}  // namespace colossal::test
