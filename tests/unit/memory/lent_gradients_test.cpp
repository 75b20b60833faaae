// Do lent gradients have memory from backward to the start of the next step, and no longer?
#include "memory/chunk_store.hpp"
#include "memory_helpers.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace colossal {
namespace {

using test::spec_of;

/// Three blocks, each with a chunk of its own: table [6,4], body [70], and a head tied to the
/// table.
struct Lender {
  Lender()
      : context(Config{}),
        table(spec_of("table", {6, 4})),
        body(spec_of("body", {70})),
        head(spec_of("head", {6, 4}, "table")) {
    const auto planner = chunk_planners().make("0", {.chunk_bytes = 64 * 4, .item_bytes = 4});
    const std::vector<ChunkStore::Block> blocks = {
        {"first", {&table}}, {"middle", {&body}}, {"last", {&head}}};
    StoreOptions options = test::plain_options(at::kFloat);
    options.lend_grads = true;
    store = std::make_unique<ChunkStore>(
        blocks, *planner, std::vector<std::string_view>{}, options, context);
  }

  /// Chunks whose gradients have memory.
  [[nodiscard]] std::int64_t filled() const {
    return std::ranges::count_if(store->shards(), [](const FlatShard& shard) {
      return shard.grad.storage().data() != nullptr;
    });
  }

  /// Backward of a block: `factor` for each element.
  void backward(int block, const Parameter& parameter, double factor, bool last) const {
    store->acquire(block, BlockUse::backward);
    at::mul(parameter.tensor(), factor).sum().backward();
    store->gradients_ready(block, last);
    store->release(block);
  }

  [[nodiscard]] double sum() const {
    double total = 0;
    for (const FlatShard& shard : store->shards()) {
      total += shard.grad.sum().item<double>();  // what lies between gradients must not count
    }
    return total;
  }

  ParallelContext context;
  Parameter table;
  Parameter body;
  Parameter head;
  std::unique_ptr<ChunkStore> store;
};

TEST_CASE("lent gradients have memory from backward to the start of the next step", "[memory]") {
  const Lender lender;
  ChunkStore& store = *lender.store;
  REQUIRE(store.shards().size() == 2);
  CHECK(lender.filled() == 0);
  for (int step = 0; step < 2; ++step) {
    store.begin_gradients();
    CHECK(lender.filled() == 0);
    for (const bool last : {false, true}) {
      lender.backward(2, lender.head, 3, last);  // opens the chunk of what its weight is tied to
      CHECK(lender.filled() == (last ? 2 : 1));
      lender.backward(1, lender.body, 5, last);
      lender.backward(0, lender.table, 1, last);
    }
    store.finish_gradients();
    CHECK(lender.sum() == 2 * (24 * (3 + 1) + 70 * 5));
    CHECK(store.counters().peak_borrowed_bytes == (64 + 128) * 4);
    store.publish();
    CHECK(lender.filled() == 2);  // what reads them after the update finds them
  }
}

TEST_CASE("lent gradients that no backward opens are zero", "[memory]") {
  const Lender lender;
  lender.store->begin_gradients();
  for (const int block : {2, 1, 0}) {
    lender.store->gradients_ready(block, true);
  }
  lender.store->finish_gradients();
  CHECK(lender.filled() == 2);
  CHECK(lender.sum() == 0);
}

TEST_CASE("lent gradients come again after an error in backward", "[memory]") {
  const Lender lender;
  ChunkStore& store = *lender.store;
  store.begin_gradients();
  store.acquire(0, BlockUse::backward);
  at::sum(lender.table.tensor()).backward();
  store.abandon_gradients();
  store.begin_gradients();
  CHECK(lender.filled() == 0);
  lender.backward(2, lender.head, 1, true);
  lender.backward(1, lender.body, 1, true);
  lender.backward(0, lender.table, 1, true);
  store.finish_gradients();
  CHECK(lender.sum() == 24 * 2 + 70);
}

}  // namespace
}  // namespace colossal
