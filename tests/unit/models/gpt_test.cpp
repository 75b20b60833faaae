// Is GPT the published model: sizes, initial values, loss at the start, and equal in any batch
// split?
#include "core/error.hpp"
#include "models/zoo.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/local_model.hpp"
#include "support/one_thread.hpp"
#include "support/tiny_models.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <cmath>
#include <map>

namespace colossal::test {
namespace {

ModelConfig gpt(std::int64_t layers,
                std::int64_t hidden,
                std::int64_t heads,
                std::int64_t positions,
                std::int64_t vocabulary) {
  ModelConfig m;
  m.num_layers = layers;
  m.hidden_size = hidden;
  m.num_heads = m.num_kv_heads = heads;
  m.ffn_hidden_size = 4 * hidden;
  m.vocab_size = vocabulary;
  m.max_seq_length = positions;
  return m;
}

/// Blocks without memory.
std::vector<std::unique_ptr<Block>> specs_of(const ModelConfig& model, LayerFactory& layers) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (const BlockDef& def : zoo().make("gpt", model)->blocks(layers)) {
    blocks.push_back(def.build());
  }
  return blocks;
}

/// Tokens and labels that look random, the same every time; one label is left out.
Batch batch_of(std::int64_t rows, std::int64_t length, std::int64_t vocabulary) {
  const at::Tensor place = at::arange(rows * length);
  Batch batch;
  batch.fields["tokens"] = place.mul(place.add(17)).remainder(vocabulary).view({rows, length});
  batch.fields["labels"] = place.mul(place.add(31)).remainder(vocabulary).view({rows, length});
  batch.fields["labels"].select(0, 0).select(0, 1).fill_(kIgnoreLabel);
  return batch;
}

/// Rows [first, first + count) of a batch, keyed by their place in it.
Batch rows_of(const Batch& whole, std::int64_t first, std::int64_t count) {
  Batch part = whole;
  part.first_row = whole.first_row + first;
  for (auto& [name, tensor] : part.fields) {
    tensor = tensor.narrow(0, first, count);
  }
  return part;
}

}  // namespace

TEST_CASE("parameter counts equal the published ones", "[models]") {
  const std::vector<std::pair<ModelConfig, std::int64_t>> rows = {
      {gpt(12, 768, 12, 1024, 50257), 124'439'808},        // gpt2-124m
      {gpt(24, 1024, 16, 1024, 50257), 354'823'168},       // gpt2-355m
      {gpt(36, 1280, 20, 1024, 50257), 774'030'080},       // gpt2-774m
      {gpt(48, 1600, 25, 1024, 50257), 1'557'611'200},     // gpt2-1.5b
      {gpt(12, 768, 12, 2048, 50257), 125'226'240},        // gpt3-125m
      {gpt(24, 1024, 16, 2048, 50257), 355'871'744},       // gpt3-350m
      {gpt(24, 1536, 16, 2048, 50257), 760'300'032},       // gpt3-760m
      {gpt(24, 2048, 16, 2048, 50257), 1'315'723'264},     // gpt3-1.3b
      {gpt(32, 2560, 32, 2048, 50257), 2'651'553'280},     // gpt3-2.7b
      {gpt(32, 4096, 32, 2048, 50257), 6'658'404'352},     // gpt3-6.7b
      {gpt(40, 5120, 40, 2048, 50257), 12'853'386'240},    // gpt3-13b
      {gpt(96, 12288, 96, 2048, 50257), 174'604'259'328},  // gpt3-175b
      {gpt(1, 768, 12, 1024, 50257), 46'473'216},          // one layer: 7,087,872 beside the rest
      {gpt(2, 64, 4, 64, 256), 120'576}};
  const ParallelContext context{Config{}};
  const auto layers = serial_factory(context);
  for (const auto& [model, count] : rows) {
    INFO("hidden " << model.hidden_size << ", layers " << model.num_layers);
    REQUIRE(num_parameters(specs_of(model, *layers)) == count);
  }
}

TEST_CASE("options change the parameters as they say", "[models]") {
  const ParallelContext context{Config{}};
  const auto layers = serial_factory(context);
  const ModelConfig base = gpt(2, 64, 4, 64, 256);
  const auto count = [&](const ModelConfig& m) { return num_parameters(specs_of(m, *layers)); };
  ModelConfig m = base;
  m.tie_embeddings = false;
  REQUIRE(count(m) == count(base) + 256 * 64);
  m = base;
  m.num_kv_heads = 1;
  REQUIRE(count(m) == count(base) - 2 * 2 * 3 * 16 * 65);  // layers, k and v, heads saved
  m = base;
  m.activation = ActivationKind::swiglu;
  REQUIRE(count(m) == count(base) + 2 * 256 * 65);
  m = base;
  m.vocab_size = 250;  // padded to 256: stored, not counted
  REQUIRE(count(m) == count(base) - 6 * 64);
}

TEST_CASE("canonical names, order and tying", "[models]") {
  const LocalModel model(tiny_gpt());
  std::vector<std::string> names;
  for (const Parameter* const parameter : model.parameters()) {
    names.push_back(parameter->spec().name);
  }
  const std::vector<std::string> expected_start = {"embed.tokens.weight",
                                                   "embed.positions.weight",
                                                   "blocks.0.norm1.weight",
                                                   "blocks.0.norm1.bias",
                                                   "blocks.0.attn.qkv.weight",
                                                   "blocks.0.attn.qkv.bias",
                                                   "blocks.0.attn.out.weight",
                                                   "blocks.0.attn.out.bias",
                                                   "blocks.0.norm2.weight",
                                                   "blocks.0.norm2.bias",
                                                   "blocks.0.mlp.up.weight",
                                                   "blocks.0.mlp.up.bias",
                                                   "blocks.0.mlp.down.weight",
                                                   "blocks.0.mlp.down.bias",
                                                   "blocks.1.norm1.weight"};
  REQUIRE(std::equal(expected_start.begin(), expected_start.end(), names.begin()));
  REQUIRE(names[names.size() - 3] == "norm.weight");
  REQUIRE(names.back() == "head.weight");
  REQUIRE(model.find("head.weight")->spec().tied_to == "embed.tokens.weight");
  REQUIRE(model.find("head.weight")->tensor().is_same(model.find("embed.tokens.weight")->tensor()));
}

TEST_CASE("initial values: spread by role, padding zero", "[models]") {
  Config config;
  config.model = gpt(4, 256, 4, 512, 500);
  const LocalModel model(config);
  const auto spread = [&](const std::string& name) {
    const Parameter& parameter = *model.find(name);
    const at::Tensor w = LocalModel::logical(parameter, parameter.tensor().detach());
    REQUIRE(w.numel() >= 65'536);
    REQUIRE(std::abs(w.mean().item<double>()) < 1e-3);
    return w.std().item<double>();
  };
  const double residual = 0.02 / std::sqrt(2.0 * 4);
  CHECK(spread("embed.tokens.weight") == Approx(0.02).epsilon(0.03));
  CHECK(spread("embed.positions.weight") == Approx(0.02).epsilon(0.03));
  CHECK(spread("blocks.2.attn.qkv.weight") == Approx(0.02).epsilon(0.03));
  CHECK(spread("blocks.2.attn.out.weight") == Approx(residual).epsilon(0.03));
  CHECK(spread("blocks.2.mlp.up.weight") == Approx(0.02).epsilon(0.03));
  CHECK(spread("blocks.2.mlp.down.weight") == Approx(residual).epsilon(0.03));
  const at::Tensor table = model.find("embed.tokens.weight")->tensor().detach();
  REQUIRE(table.size(0) == 512);
  REQUIRE(table.narrow(0, 500, 12).abs().max().item<double>() == 0);
  REQUIRE(!at::equal(model.find("blocks.0.attn.out.weight")->tensor(),
                     model.find("blocks.1.attn.out.weight")->tensor()));
}

TEST_CASE("the loss at the start is ln V + d std^2 / 2", "[models]") {
  Config config;
  config.model = gpt(2, 64, 4, 64, 1000);
  config.model.init_std = 0.05;
  const LocalModel model(config);
  const at::NoGradGuard no_grad;
  const Batch batch = batch_of(4, 64, 1000);
  const double loss = model.forward(batch).loss_sum.item<double>() / (4 * 64 - 1);
  REQUIRE(std::abs(loss - (std::log(1000.0) + 0.5 * 64 * 0.05 * 0.05)) < 0.3);
}

TEST_CASE("with labels the head returns the loss, without them the logits", "[models]") {
  const Config config = tiny_gpt();  // vocabulary 61, padded to 64
  const LocalModel model(config);
  Batch batch = batch_of(2, 12, 61);
  batch.training = false;
  const Activation with = model.forward(batch);
  REQUIRE(with.loss_sum.dim() == 0);
  REQUIRE(with.tensors().empty());
  batch.fields.erase("labels");
  const Activation without = model.forward(batch);
  REQUIRE(!without.loss_sum.defined());
  REQUIRE(without["logits"].sizes() == at::IntArrayRef({2, 12, 61}));
}

TEST_CASE("losses and gradients do not depend on how the batch is split, dropout on", "[models]") {
  const OneThread one_thread;
  const Config config = tiny_gpt();
  REQUIRE((config.model.dropout > 0 && config.model.attention_dropout > 0));
  const Batch whole = batch_of(6, 12, 61);
  const auto run = [&](const std::vector<std::int64_t>& sizes) {
    const LocalModel model(config);
    double loss = 0;
    std::int64_t first = 0;
    for (const std::int64_t rows : sizes) {
      const at::Tensor part = model.forward(rows_of(whole, first, rows)).loss_sum;
      part.backward();
      loss += part.item<double>();
      first += rows;
    }
    std::map<std::string, at::Tensor> grads;
    for (const Parameter* const parameter : model.parameters()) {
      grads[parameter->spec().name] = parameter->tensor().grad();
    }
    return std::pair(loss, grads);
  };
  const auto [loss, grads] = run({6});
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{3, 3}, {1, 2, 3}, {1, 1, 1, 1, 1, 1}}) {
    const auto [split_loss, split_grads] = run(sizes);
    require_relative(loss, split_loss, 1e-12, "loss");
    for (const auto& [name, grad] : grads) {
      require_close(grad, split_grads.at(name), 1e-12, name);
    }
  }
}

TEST_CASE("dropout changes with the step and stays with the seed", "[models]") {
  Config config = tiny_gpt();
  Batch batch = batch_of(2, 12, 61);
  const auto loss = [&](const Config& c, std::int64_t step) {
    batch.step = step;
    return LocalModel(c).forward(batch).loss_sum.item<double>();
  };
  REQUIRE(loss(config, 0) == loss(config, 0));
  REQUIRE(loss(config, 0) != loss(config, 1));
  batch.training = false;
  REQUIRE(loss(config, 0) == loss(config, 1));
}

TEST_CASE("outputs say what forward returns", "[models]") {
  const LocalModel model(tiny_gpt());
  const Batch batch = batch_of(3, 12, 61);
  const Mesh& mesh = model.context().mesh();
  Activation x;
  for (const auto& block : model.blocks()) {
    const std::vector<BoundarySpec> specs = block->outputs({3, 12});
    x = block->forward(x, batch);
    REQUIRE(specs.size() == x.tensors().size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const auto& [name, tensor] = x.tensors()[i];
      REQUIRE(specs[i].name == name);
      REQUIRE(tensor.sizes() ==
              at::IntArrayRef(local_shape(specs[i].layout, specs[i].global, mesh)));
      REQUIRE(tensor.scalar_type() == specs[i].dtype);
    }
  }
}

TEST_CASE("an unknown model type lists the known ones", "[models]") {
  try {
    (void)zoo().make("gtp", ModelConfig{});
    FAIL("gtp exists");
  } catch (const Error& error) {
    REQUIRE(error.id() == "unknown-name");
    REQUIRE_THAT(error.what(), Catch::Matchers::Contains("gpt"));
  }
}

}  // namespace colossal::test
