// Do the layers of the serial factory declare the right parameters and compute what they say?
#include "core/error.hpp"
#include "nn/layers.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace colossal::test {
namespace {

Config fp64_config() {
  Config config;
  config.train.precision = Precision::fp64;
  return config;
}

struct Fixture {
  ParallelContext context{fp64_config()};
  std::unique_ptr<LayerFactory> layers = serial_factory(context);
};

Batch rows_from(std::int64_t first, std::int64_t step = 0) {
  Batch batch;
  batch.first_row = first;
  batch.step = step;
  return batch;
}

const InitSpec kNormal{InitSpec::Kind::normal, 0.1};

}  // namespace

TEST_CASE("layers declare canonical parameters, replicated where samples differ", "[nn]") {
  Fixture f;
  const auto linear =
      f.layers->expand({"blocks.0.mlp.up", 3, 5, true, {}, kNormal, ActivationKind::gelu});
  const std::vector<Parameter*> parameters = linear->parameters();
  REQUIRE(parameters.size() == 2);
  REQUIRE(parameters[0]->spec().name == "blocks.0.mlp.up.weight");
  REQUIRE(parameters[0]->spec().shape == Shape{5, 3});
  REQUIRE(parameters[0]->spec().layout.replicated == axes({Axis::dr, Axis::dp, Axis::sp}));
  REQUIRE(parameters[1]->spec().name == "blocks.0.mlp.up.bias");
  REQUIRE(parameters[1]->spec().init.kind == InitSpec::Kind::zeros);
  REQUIRE(f.layers->contract({"a", 3, 5, false, {}, kNormal, {}})->parameters().size() == 1);
  const auto norm = f.layers->norm({"norm", 4, 1e-5});
  REQUIRE(norm->parameters()[0]->spec().init.kind == InitSpec::Kind::ones);
  REQUIRE(f.layers->attention({"a", 2, 2, 4, true, 0, false})->parameters().empty());
  REQUIRE(f.layers->dropout({"a", 0.1})->parameters().empty());
  REQUIRE(f.layers->token_loss(3)->parameters().empty());
}

TEST_CASE("a head with few logits at a time has the loss and gradients of one with all", "[nn]") {
  const ParallelContext context{fp64_config()};
  const at::Tensor labels = at::arange(14, at::kLong).view({2, 7}).remainder(5);
  const at::Tensor values = normal_tensor({2, 7, 6}, "x");
  const auto run = [&](std::optional<std::int64_t> logit_rows, bool training) {
    const auto layers = serial_factory(context, {}, logit_rows);
    const auto head = layers->head({"head", 6, 5, 8, "", kNormal});
    const auto loss = layers->token_loss(5);
    const std::vector<Parameter*> weights = head->parameters();
    materialize(weights, context);
    const at::AutoGradMode mode(training);
    const at::Tensor x = values.clone().set_requires_grad(training);
    const auto factor = training ? std::optional(0.25) : std::nullopt;
    const at::Tensor sum = loss->forward_head(*head, x, labels, {factor});
    std::vector<at::Tensor> results = {sum.detach()};
    if (training) {
      sum.backward(at::full_like(sum, 0.25));
      results.insert(results.end(), {x.grad(), weights[0]->tensor().grad()});
    }
    return results;
  };
  for (const bool training : {true, false}) {
    const auto whole = run({}, training);
    for (const std::int64_t rows : {1, 5, 14, 100}) {
      const auto parts = run(rows, training);
      REQUIRE(parts.size() == whole.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        require_close(whole[i], parts[i], 1e-14, "result " + std::to_string(i));
      }
    }
  }
  REQUIRE(serial_factory(context, {}, 5)->logit_rows(14) == 5);
  REQUIRE(serial_factory(context)->logit_rows(14) == 14);
}

TEST_CASE("a residual is never added behind an activation", "[nn]") {
  Fixture f;
  const auto layer = f.layers->expand({"up", 3, 5, true, {}, kNormal, ActivationKind::gelu});
  try {
    (void)layer->forward_onto(at::zeros({1, 2, 5}), at::zeros({1, 2, 3}));
    FAIL("it was accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "layer-use");
  }
}

TEST_CASE("the vocabulary is stored padded and checked; a tied head names its owner", "[nn]") {
  Fixture f;
  const auto table = f.layers->vocabulary({"embed.tokens", 5, 8, 3, kNormal});
  const auto head = f.layers->head({"head", 3, 5, 8, "embed.tokens.weight", kNormal});
  REQUIRE(table->parameters()[0]->spec().padded == Shape{8, 3});
  REQUIRE(table->parameters()[0]->spec().shape == Shape{5, 3});
  REQUIRE(head->parameters()[0]->spec().tied_to == "embed.tokens.weight");
  std::vector<Parameter*> all = {table->parameters()[0], head->parameters()[0]};
  materialize(all, f.context);
  const at::Tensor weight = all[0]->tensor();
  const at::Tensor indices = at::arange(5).view({1, 5});
  REQUIRE(at::equal(table->forward(indices), at::embedding(weight, indices)));
  const at::Tensor x = normal_tensor({1, 2, 3}, "x");
  require_close(at::linear(x, weight), head->forward(x), 1e-14, "head");
  for (const std::int64_t wrong : {-1, 5}) {  // 5 exists, as padding
    try {
      (void)table->forward(at::zeros({1, 2}, at::kLong).fill_(wrong));
      FAIL("the index was accepted");
    } catch (const Error& error) {
      REQUIRE(error.id() == "token-range");
      REQUIRE(error.kind() == ErrorKind::data);
    }
  }
}

TEST_CASE("dropout depends on the row in the global batch, not on the micro-batch", "[nn]") {
  Fixture f;
  const auto layer = f.layers->dropout({"site", 0.5});
  const at::Tensor x = at::ones({6, 3, 5}, at::kDouble);
  const at::Tensor whole = layer->forward(x, {}, rows_from(0));
  const at::Tensor parts = at::cat({layer->forward(x.narrow(0, 0, 2), {}, rows_from(0)),
                                    layer->forward(x.narrow(0, 2, 4), {}, rows_from(2))});
  REQUIRE(at::equal(whole, parts));
  REQUIRE(!at::equal(whole, layer->forward(x, {}, rows_from(0, 1))));
  REQUIRE(!at::equal(whole.narrow(0, 0, 2), whole.narrow(0, 2, 2)));
}

TEST_CASE("dropout is off in evaluation and at p = 0; the residual is added always", "[nn]") {
  Fixture f;
  const at::Tensor x = normal_tensor({2, 3, 5}, "x");
  const at::Tensor residual = normal_tensor({2, 3, 5}, "r");
  Batch evaluation = rows_from(0);
  evaluation.training = false;
  const auto half = f.layers->dropout({"site", 0.5});
  REQUIRE(half->forward(x, {}, evaluation).is_same(x));
  REQUIRE(at::equal(half->forward(x, residual, evaluation), x.add(residual)));
  const auto none = f.layers->dropout({"site", 0});
  REQUIRE(at::equal(none->forward(x, residual, rows_from(0)), x.add(residual)));
}

TEST_CASE("the attention paths agree, and its dropout is keyed by global rows", "[nn]") {
  Fixture f;
  const at::Tensor qkv = normal_tensor({4, 7, 8 * 6}, "qkv");  // 4 q heads, 1 k, 1 v head of 8
  for (const bool causal : {true, false}) {
    const auto fast = f.layers->attention({"a", 4, 1, 8, causal, 0, false});
    const auto math = f.layers->attention({"a", 4, 1, 8, causal, 0, true});
    require_close(math->forward(qkv, rows_from(0)),
                  fast->forward(qkv, rows_from(0)),
                  1e-13,
                  "fused attention");
  }
  const auto dropped = f.layers->attention({"a", 4, 1, 8, true, 0.5, false});
  const at::Tensor whole = dropped->forward(qkv, rows_from(0));
  const at::Tensor parts = at::cat({dropped->forward(qkv.narrow(0, 0, 1), rows_from(0)),
                                    dropped->forward(qkv.narrow(0, 1, 3), rows_from(1))});
  require_close(whole, parts, 1e-14, "attention dropout in parts");
  Batch evaluation = rows_from(0);
  evaluation.training = false;
  const auto plain = f.layers->attention({"a", 4, 1, 8, true, 0, false});
  REQUIRE(at::equal(dropped->forward(qkv, evaluation), plain->forward(qkv, evaluation)));
  REQUIRE(!at::equal(whole, plain->forward(qkv, rows_from(0))));
}

TEST_CASE("the hidden boundary is split over samples and sequence", "[nn]") {
  Fixture f;
  const BoundarySpec hidden = f.layers->hidden({4, 8}, 16);
  REQUIRE(hidden.name == "hidden");
  REQUIRE(hidden.global == Shape{4, 8, 16});
  REQUIRE(hidden.dtype == at::kDouble);
  REQUIRE(hidden.layout.sharded() == axes({Axis::dr, Axis::dp, Axis::sp}));
  REQUIRE(local_shape(hidden.layout, hidden.global, f.context.mesh()) == Shape{4, 8, 16});
}

}  // namespace colossal::test
