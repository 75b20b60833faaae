// Does every block of GPT pass the gradient check, with each option that changes its graph?
#include "models/zoo.hpp"
#include "support/gradcheck.hpp"
#include "support/local_model.hpp"
#include "support/tiny_models.hpp"

#include <ATen/ops/arange.h>

namespace colossal::test {
namespace {

/// tiny_gpt() cut down to what finite differences of every parameter can afford.
Config gradient_config() {
  Config config = tiny_gpt();
  ModelConfig& m = config.model;
  m.num_layers = 1;
  m.hidden_size = 4;
  m.num_heads = 2;
  m.num_kv_heads = 2;
  m.ffn_hidden_size = 6;
  m.vocab_size = 5;
  m.vocab_pad_multiple = 4;
  m.max_seq_length = 3;
  m.init_std = 0.5;
  return config;
}

Batch small_batch() {
  Batch batch;
  batch.fields["tokens"] = at::arange(6).remainder(5).view({2, 3});
  batch.fields["labels"] = at::arange(6).add(2).remainder(5).view({2, 3});
  batch.fields["labels"].select(1, 1).fill_(kIgnoreLabel);
  return batch;
}

at::Tensor result_of(const Activation& out) {
  return out.loss_sum.defined() ? out.loss_sum : out.tensors().front().second;
}

/// Checks block `index` with respect to all its parameters and, but for the first, its input.
void check_block(const LocalModel& model, std::size_t index, const std::string& what) {
  const OneThread one_thread;
  const Batch batch = small_batch();
  Block& block = *model.blocks()[index];
  Activation in;
  for (std::size_t i = 0; i < index; ++i) {
    in = model.blocks()[i]->forward(in, batch);
  }
  std::vector<at::Tensor> inputs;
  for (Parameter* const parameter : block.parameters()) {
    inputs.push_back(parameter->tensor());
  }
  if (index > 0) {
    inputs.push_back(in["hidden"].detach().clone().set_requires_grad(true));
  }
  check_gradients(
      what,
      [&](const std::vector<at::Tensor>& x) {
        Activation from;
        if (index > 0) {
          from.set("hidden", x.back());
        }
        return result_of(block.forward(from, batch));
      },
      inputs);
}

}  // namespace

TEST_CASE("gradients of every block, dropout on", "[models]") {
  const LocalModel model(gradient_config());
  check_block(model, 0, "embed");
  check_block(model, 1, "decoder block");
  check_block(model, 2, "head");
}

TEST_CASE("gradients of a decoder block with each option", "[models]") {
  for (const ActivationKind activation :
       {ActivationKind::gelu, ActivationKind::relu, ActivationKind::swiglu}) {
    Config config = gradient_config();
    config.model.activation = activation;
    config.model.num_kv_heads = 1;
    config.model.attention_dropout = 0;
    check_block(LocalModel(config), 1, "decoder block, grouped heads");
    config.model.attention = AttentionKind::math;
    check_block(LocalModel(config), 1, "decoder block, plain attention");
  }
}

TEST_CASE("gradients of a head with its own weight", "[models]") {
  Config config = gradient_config();
  config.model.tie_embeddings = false;
  check_block(LocalModel(config), 2, "untied head");
}

}  // namespace colossal::test
