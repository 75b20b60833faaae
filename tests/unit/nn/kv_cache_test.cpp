// Does attention over cached tokens equal attention over the whole sequence, for every row on its
// own?
#include "nn/kv_cache.hpp"

#include "core/error.hpp"
#include "nn/functions.hpp"
#include "nn/layers.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <functional>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::int64_t kCapacity = 21;

kernels::AttentionShape shape_of(std::int64_t heads, std::int64_t kv, std::int64_t head_dim) {
  return {heads, kv, head_dim, true};
}

const std::vector<kernels::AttentionShape> kShapes = {shape_of(1, 1, 16),
                                                      shape_of(4, 4, 32),
                                                      shape_of(4, 2, 16),
                                                      shape_of(6, 1, 5),
                                                      shape_of(2, 2, 8)};

at::Tensor packed(std::int64_t rows,
                  std::int64_t tokens,
                  const kernels::AttentionShape& shape,
                  at::ScalarType dtype) {
  const std::int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  return normal_tensor({rows, tokens, width}, "qkv", dtype).mul(1.5);
}

/// Context of the whole sequence, given to the cache in pieces of these lengths.
at::Tensor in_pieces(const at::Tensor& qkv,
                     const kernels::AttentionShape& shape,
                     const std::vector<std::int64_t>& pieces) {
  KvCache cache(3, kCapacity);
  const int layer = cache.add_layer();
  std::vector<at::Tensor> contexts;
  std::int64_t seen = 0;
  const std::vector<std::int64_t> slots = {2, 0};
  cache.select(slots);
  for (const std::int64_t piece : pieces) {
    contexts.push_back(cache.attend(layer, qkv.narrow(1, seen, piece), shape));
    cache.advance(piece);
    seen += piece;
    REQUIRE(cache.length(0) == seen);
    REQUIRE(cache.length(1) == 0);
    REQUIRE(cache.length(2) == seen);
  }
  return at::cat(contexts, 1);
}

void require_internal(std::string_view id, const std::function<void()>& call) {
  try {
    call();
    FAIL("no error " << id);
  } catch (const Error& error) {
    REQUIRE(error.id() == id);
    REQUIRE(error.kind() == ErrorKind::internal);
  }
}

}  // namespace

TEST_CASE("cached attention equals attention over whole sequences", "[cache]") {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const kernels::AttentionShape& shape : kShapes) {
      INFO(shape.num_heads << " heads, " << shape.num_kv_heads << " of k and v, "
                           << shape.head_dim);
      const at::Tensor qkv = packed(2, 20, shape, dtype);
      const at::Tensor whole = kernels::attention_forward(qkv.to(at::kDouble), shape).context_bsh;
      const double tolerance = 2 * tolerance_of(dtype);
      require_close(whole, in_pieces(qkv, shape, {20}), tolerance, "at once");
      require_close(whole, in_pieces(qkv, shape, {7, 1, 1, 9, 2}), tolerance, "in pieces");
      require_close(whole,
                    in_pieces(qkv, shape, std::vector<std::int64_t>(20, 1)),
                    tolerance,
                    "token by token");
    }
  }
}

TEST_CASE("a row of its own length has the same bits alone and beside others", "[cache]") {
  const kernels::AttentionShape shape = shape_of(4, 2, 32);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const std::vector<std::int64_t> lengths = {3, 17, 1, 8};
    const at::Tensor history = packed(4, 18, shape, dtype);
    const at::Tensor next = packed(4, 1, shape, dtype);
    KvCache together(4, kCapacity);
    const int layer = together.add_layer();
    std::vector<at::Tensor> alone;
    for (std::int64_t row = 0; row < 4; ++row) {
      const at::Tensor seen =
          history.narrow(0, row, 1).narrow(1, 0, lengths[static_cast<std::size_t>(row)]);
      KvCache own(1, kCapacity);
      const int own_layer = own.add_layer();
      const std::int64_t first = 0;
      own.select({&first, 1});
      (void)own.attend(own_layer, seen, shape);
      own.advance(seen.size(1));
      alone.push_back(own.attend(own_layer, next.narrow(0, row, 1), shape));
      const std::int64_t slot = 3 - row;
      together.select({&slot, 1});
      (void)together.attend(layer, seen, shape);
      together.advance(seen.size(1));
    }
    const std::vector<std::int64_t> slots = {3, 2, 1, 0};
    together.select(slots);
    REQUIRE(at::equal(together.attend(layer, next, shape), at::cat(alone, 0)));
  }
}

TEST_CASE("a cleared slot is as good as a new one", "[cache]") {
  const kernels::AttentionShape shape = shape_of(2, 2, 16);
  const at::Tensor qkv = packed(1, 12, shape, at::kFloat);
  const std::vector<std::int64_t> slot = {0};
  KvCache cache(1, kCapacity);
  const int layer = cache.add_layer();
  cache.select(slot);
  const at::Tensor first = cache.attend(layer, qkv, shape);
  cache.advance(12);
  cache.clear(0);
  REQUIRE(cache.length(0) == 0);
  REQUIRE(at::equal(cache.attend(layer, qkv, shape), first));
}

TEST_CASE("the attention core of a factory with a cache continues its slots", "[cache]") {
  Config config;
  config.train.precision = Precision::fp64;
  const ParallelContext context(config);
  KvCache cache(1, kCapacity);
  const auto with = serial_factory(context, cache);
  const auto without = serial_factory(context);
  const AttentionSpec spec{"core", 4, 2, 16, true, 0.5, false};
  const auto cached = with->attention(spec);
  const auto whole = without->attention(spec);
  const at::Tensor qkv = packed(1, 6, shape_of(4, 2, 16), at::kDouble);
  Batch batch;
  batch.training = false;
  const std::vector<std::int64_t> slot = {0};
  cache.select(slot);
  const at::Tensor first = cached->forward(qkv.narrow(1, 0, 4), batch);
  cache.advance(4);
  const at::Tensor second = cached->forward(qkv.narrow(1, 4, 2), batch);
  require_close(whole->forward(qkv, batch), at::cat({first, second}, 1), 1e-12, "context");
}

TEST_CASE("the cache refuses what it cannot keep", "[cache]") {
  const kernels::AttentionShape shape = shape_of(1, 1, 16);
  KvCache cache(2, 4);
  const int layer = cache.add_layer();
  const std::vector<std::int64_t> one = {1};
  const std::vector<std::int64_t> twice = {1, 1};
  const std::vector<std::int64_t> absent = {2};
  require_internal("cache-slot", [&] { cache.select(twice); });
  require_internal("cache-slot", [&] { cache.select(absent); });
  require_internal("cache-slot", [&] { cache.clear(-1); });
  cache.select(one);
  require_internal("cache-rows",
                   [&] { (void)cache.attend(layer, packed(2, 1, shape, at::kFloat), shape); });
  require_internal("cache-full",
                   [&] { (void)cache.attend(layer, packed(1, 5, shape, at::kFloat), shape); });
  kernels::AttentionShape open = shape;
  open.causal = false;
  require_internal("cache-causal",
                   [&] { (void)cache.attend(layer, packed(1, 1, shape, at::kFloat), open); });
}

}  // namespace colossal::test
