// Do the closed cost formulas count what a model does and keeps?
#include "models/zoo.hpp"
#include "support/catch.hpp"
#include "support/local_model.hpp"

namespace colossal::test {
namespace {

Config gpt2_small() {
  Config config;
  ModelConfig& m = config.model;
  m.num_layers = 12;
  m.hidden_size = 768;
  m.num_heads = m.num_kv_heads = 12;
  m.ffn_hidden_size = 4 * 768;
  m.vocab_size = 50257;
  m.vocab_pad_multiple = 1;
  m.max_seq_length = 1024;
  return config;
}

BlockCost total(const ModelConfig& model, LayerFactory& layers, const BatchShape& shape) {
  BlockCost sum;
  for (const BlockDef& def : zoo().make("gpt", model)->blocks(layers)) {
    const BlockCost one = def.build()->cost(shape);
    sum.forward_flops += one.forward_flops;
    sum.backward_flops += one.backward_flops;
    sum.param_bytes += one.param_bytes;
    sum.activation_bytes += one.activation_bytes;
    sum.boundary_bytes += one.boundary_bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("flops of GPT-2 are the published count with causal attention", "[cost]") {
  const Config config = gpt2_small();
  const ParallelContext context(config);
  const auto layers = serial_factory(context);
  const BlockCost cost = total(config.model, *layers, {1, 1024});
  // model-zoo section 0: 284,812,800 a token with full attention, of which 4 s d a layer is
  // attention; the causal half of it is not computed
  const double causal = 284'812'800.0 - 12 * 2.0 * 1024 * 768;
  REQUIRE(cost.forward_flops == 1024 * causal);
  REQUIRE(cost.backward_flops == 2 * cost.forward_flops);
  REQUIRE(cost.param_bytes == 4 * 124'439'808LL);
  REQUIRE(cost.boundary_bytes == 13 * 1024 * 768 * 4);
}

TEST_CASE("flops count each weight once a token, and each pair of tokens twice a layer", "[cost]") {
  for (const ActivationKind activation : {ActivationKind::gelu, ActivationKind::swiglu}) {
    Config config = gpt2_small();
    ModelConfig& m = config.model;
    m.num_layers = 2;
    m.hidden_size = 32;
    m.num_heads = 4;
    m.num_kv_heads = 2;
    m.ffn_hidden_size = 48;
    m.vocab_size = 50;
    m.vocab_pad_multiple = 64;
    m.activation = activation;
    const LocalModel model(config);
    double products = 0;  // multiply-adds a token, from the shapes of all matrices applied to it
    for (const Parameter* const parameter : model.parameters()) {
      const ParamSpec& spec = parameter->spec();
      const bool lookup = spec.name.starts_with("embed.");
      products += spec.padded.size() == 2 && !lookup ? static_cast<double>(numel(spec.padded)) : 0;
    }
    const double tokens = 3 * 16;
    const double pairs = 3 * (16 * 16 / 2.0);
    const double expected = 2 * (tokens * products + 2 * 2 * pairs * 32);
    const auto layers = serial_factory(model.context());
    REQUIRE(total(m, *layers, {3, 16}).forward_flops == expected);
  }
}

TEST_CASE("activation bytes grow with the batch; probabilities are kept only by math", "[cost]") {
  Config config = gpt2_small();
  config.model.num_layers = 1;
  const ParallelContext context(config);
  const auto layers = serial_factory(context);
  const auto block_bytes = [&](const ModelConfig& m, const BatchShape& shape) {
    return zoo().make("gpt", m)->blocks(*layers)[1].build()->cost(shape).activation_bytes;
  };
  const ModelConfig& m = config.model;
  const std::int64_t one = block_bytes(m, {1, 1024});
  // x, norm, qkv, context, x, norm, 2 f and the statistics, in fp32
  REQUIRE(one == 1024LL * (4 * 768 + 3 * 768 + 768 + 2 * 3072 + 12 + 4) * 4);
  REQUIRE(block_bytes(m, {4, 1024}) == 4 * one);
  ModelConfig math = m;
  math.attention = AttentionKind::math;
  REQUIRE(block_bytes(math, {1, 1024}) == one + 12LL * 1024 * 1024 * 4);
  ModelConfig dropped = m;
  dropped.attention_dropout = 0.1;
  REQUIRE(block_bytes(dropped, {1, 1024}) == one + 2 * 12LL * 1024 * 1024 * 4);
}

TEST_CASE("costs are in bytes of the run's precision", "[cost]") {
  Config config = gpt2_small();
  const ParallelContext narrow(config);
  config.train.precision = Precision::fp64;
  const ParallelContext wide(config);
  const BlockCost a = total(config.model, *serial_factory(narrow), {1, 8});
  const BlockCost b = total(config.model, *serial_factory(wide), {1, 8});
  REQUIRE(b.param_bytes == 2 * a.param_bytes);
  REQUIRE(b.boundary_bytes == 2 * a.boundary_bytes);
  REQUIRE(b.forward_flops == a.forward_flops);
}

}  // namespace colossal::test
