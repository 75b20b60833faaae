// Does cutting the graph at block boundaries change anything? It must not, to the last bit.
#include "train/stage.hpp"

#include "core/error.hpp"
#include "support/close.hpp"
#include "support/tiny_models.hpp"
#include "train/model.hpp"
#include "train/trainer.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr double kFactor = 0.125;

Batch first_batch(const TrainerParts& parts) {
  std::vector<std::int64_t> indices(4);
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch = parts.train_data->read(indices);
  batch.step = 3;
  return batch;
}

/// The loss sum of one uncut graph over `blocks`.
at::Tensor uncut(std::span<const std::unique_ptr<Block>> blocks, const Batch& batch) {
  Activation out;
  for (const std::unique_ptr<Block>& block : blocks) {
    out = block->forward(out, batch);
  }
  return out.loss_sum;
}

/// One block with one parameter and whatever forward a test gives it.
class FakeBlock : public Block {
 public:
  using Forward = std::function<Activation(const at::Tensor& weight)>;
  explicit FakeBlock(Forward forward) : forward_(std::move(forward)) {}

  Activation forward(const Activation& /*in*/, const Batch& /*batch*/) override {
    return forward_(weight_.tensor());
  }
  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& shape) const override {
    return {{.name = "hidden",
             .global = {shape.batch, shape.sequence},
             .layout = {},
             .dtype = at::kDouble}};
  }
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&weight_}; }
  [[nodiscard]] BlockCost cost(const BatchShape& /*shape*/) const override { return {}; }

 private:
  Forward forward_;
  Parameter weight_{ParamSpec{
      .name = "weight", .shape = {1}, .padded = {1}, .layout = {}, .init = {}, .tied_to = {}}};
};

/// Kind and id of the error of one forward and backward of a FakeBlock.
std::string error_of(FakeBlock::Forward forward) {
  const ParallelContext context(tiny_gpt());
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<FakeBlock>(std::move(forward)));
  const std::vector<ChunkStore::Block> owned = {{"fake", blocks[0]->parameters()}};
  const std::unique_ptr<ChunkPlanner> planner = make_planner(blocks, tiny_gpt());
  ChunkStore store(owned, *planner, {}, store_options(tiny_gpt()), context);
  BlockStage stage(blocks, store, context);
  Batch batch;
  batch.fields["tokens"] = at::zeros({2, 3}, at::kLong);
  try {
    store.begin_gradients();
    stage.begin_step(1);
    stage.forward(0, batch);
    stage.backward(0, true);
  } catch (const Error& error) {
    return std::string(name(error.kind())) + " " + std::string(error.id());
  }
  return "none";
}

Activation hidden(at::Tensor tensor) {
  Activation out;
  out.set("hidden", std::move(tensor));
  return out;
}

}  // namespace

TEST_CASE("gradients of the cut graph are bit-equal to those of one graph", "[stage]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  const Batch batch = first_batch(parts);

  parts.store->begin_gradients();
  parts.stage->begin_step(kFactor);
  const Activation out = parts.stage->forward(0, batch);
  parts.stage->backward(0, true);
  parts.store->finish_gradients();

  const ModelParts model = make_model(config, context);
  std::vector<Parameter*> parameters;
  for (const std::unique_ptr<Block>& block : model.blocks) {
    const std::vector<Parameter*> of_block = block->parameters();
    parameters.insert(parameters.end(), of_block.begin(), of_block.end());
  }
  materialize(parameters, context);
  const at::Tensor loss = uncut(model.blocks, batch);
  at::mul(loss, kFactor).backward();

  CHECK(at::equal(out.loss_sum, loss));
  CHECK_FALSE(out.loss_sum.requires_grad());
  std::map<std::string, at::Tensor> expected;
  for (Parameter* parameter : parameters) {
    expected[parameter->spec().name] = parameter->leaf().grad();
  }
  for (Parameter* parameter : parts.store->parameters()) {
    INFO(parameter->spec().name);
    CHECK(at::equal(parameter->leaf().grad(), expected.at(parameter->spec().name)));
  }
}

TEST_CASE("micro-batches accumulate", "[stage]") {
  Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  const Batch batch = first_batch(parts);
  const auto gradient = [&](int repeats) {
    parts.store->begin_gradients();
    parts.stage->begin_step(1.0 / repeats);
    for (int i = 0; i < repeats; ++i) {
      parts.stage->forward(i, batch);
    }
    for (int i = 0; i < repeats; ++i) {
      parts.stage->backward(i, i == repeats - 1);
    }
    parts.store->finish_gradients();
    return parts.store->shards()[0].grad.clone();
  };
  require_close(gradient(1), gradient(3), 1e-13, "gradient");
}

TEST_CASE("evaluation builds no graph and gives the loss of forward", "[stage]") {
  Config config = tiny_gpt();
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  Batch batch = first_batch(parts);
  parts.store->begin_gradients();
  parts.stage->begin_step(1);
  const at::Tensor loss = parts.stage->forward(0, batch).loss_sum;
  batch.training = false;
  const at::Tensor evaluated = parts.stage->evaluate(batch).loss_sum;
  CHECK_FALSE(evaluated.requires_grad());
  require_close(loss, evaluated, 1e-14, "loss");
}

TEST_CASE("dropout acts in training only", "[stage]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  Batch batch = first_batch(parts);
  const auto loss = [&] { return parts.stage->evaluate(batch).loss_sum.item<double>(); };
  const double trained = loss();
  batch.step = 4;
  CHECK(loss() != trained);
  batch.training = false;
  const double evaluated = loss();
  batch.step = 3;
  CHECK(loss() == evaluated);
}

TEST_CASE("a block that returns another shape, name or dtype than declared is an error",
          "[stage]") {
  CHECK(error_of([](const at::Tensor&) { return hidden(at::ones({2, 4}, at::kDouble)); }) ==
        "internal boundary");
  CHECK(error_of([](const at::Tensor&) { return hidden(at::ones({2, 3}, at::kFloat)); }) ==
        "internal boundary");
  CHECK(error_of([](const at::Tensor&) { return Activation(); }) == "internal boundary");
  CHECK(error_of([](const at::Tensor&) {
          Activation out;
          out.set("other", at::ones({2, 3}, at::kDouble));
          return out;
        }) == "internal boundary");
}

TEST_CASE("torch's failures become errors that name the block", "[stage]") {
  CHECK(error_of([](const at::Tensor& weight) { return hidden(weight.view({7})); }) ==
        "internal torch-error");
  CHECK(error_of([](const at::Tensor&) {
          return hidden(at::ones({std::int64_t{1} << 50}, at::kDouble));
        }) == "memory out-of-memory");
  CHECK(error_of([](const at::Tensor&) -> Activation {
          TORCH_CHECK(false, "kthvalue CUDA does not have a deterministic implementation");
        }) == "config nondeterministic-op");
}

TEST_CASE("a block on which no loss depends is left out of backward", "[stage]") {
  CHECK(error_of([](const at::Tensor& weight) { return hidden(weight.expand({2, 3})); }) == "none");
}

TEST_CASE("backward needs its forward", "[stage]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  try {
    parts.stage->backward(0, true);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "stage-order");
  }
}

TEST_CASE("a stage has at least one block", "[stage]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  try {
    const BlockStage empty({}, *parts.store, context);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "empty-stage");
  }
}

}  // namespace colossal::test
