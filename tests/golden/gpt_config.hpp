// How does a variant of gpt.h5 or mlp.h5 become a model?
#pragma once

#include "support/golden.hpp"
#include "support/local_model.hpp"

#include <ATen/core/grad_mode.h>

#include <map>
#include <string>

namespace colossal::test {

/// Configuration of one variant of the fixture.
inline Config golden_config(const Golden& golden, const std::string& variant) {
  static const std::map<std::string, ActivationKind> kActivations = {
      {"gelu", ActivationKind::gelu},
      {"gelu_tanh", ActivationKind::gelu_tanh},
      {"relu", ActivationKind::relu},
      {"swiglu", ActivationKind::swiglu}};
  Config config;
  config.train.precision = Precision::fp64;
  ModelConfig& m = config.model;
  m.num_layers = golden.integer(variant, "num_layers");
  m.hidden_size = golden.integer(variant, "hidden_size");
  m.num_heads = golden.integer(variant, "num_heads");
  m.num_kv_heads = golden.integer(variant, "num_kv_heads");
  m.ffn_hidden_size = golden.integer(variant, "ffn_hidden_size");
  m.vocab_size = golden.integer(variant, "vocab_size");
  m.vocab_pad_multiple = golden.integer(variant, "vocab_pad_multiple");
  m.max_seq_length = golden.integer(variant, "max_seq_length");
  m.norm_eps = golden.number(variant, "norm_eps");
  m.tie_embeddings = golden.integer(variant, "tie_embeddings") == 1;
  m.activation = kActivations.at(golden.text(variant, "activation"));
  return config;
}

/// Overwrites the logical part of a stored tensor by the fixture's weight of that parameter.
inline void load_golden_weight(const Golden& golden,
                               const std::string& variant,
                               const Parameter& parameter,
                               const at::Tensor& stored) {
  at::NoGradGuard no_grad;
  LocalModel::logical(parameter, stored)
      .copy_(golden.tensor(variant + "/weights/" + parameter.spec().name));
}

/// The fixture's batch, with labels.
inline Batch golden_batch(const Golden& golden, const std::string& variant) {
  Batch batch;
  batch.fields["tokens"] = golden.tensor(variant + "/tokens");
  batch.fields["labels"] = golden.tensor(variant + "/labels");
  return batch;
}

/// Configuration of one variant of mlp.h5.
inline Config golden_mlp_config(const Golden& golden, const std::string& variant) {
  Config config;
  config.train.precision = Precision::fp64;
  config.model.type = ModelType::mlp;
  config.model.in_features = golden.integer(variant, "in_features");
  config.model.out_features = golden.integer(variant, "out_features");
  const at::Tensor layers = golden.tensor(variant + "/layers");
  for (std::int64_t i = 0; i < layers.numel(); ++i) {
    config.model.layers.push_back(layers[i].item<std::int64_t>());
  }
  return config;
}

/// The rows of a variant of mlp.h5, with labels.
inline Batch golden_mlp_batch(const Golden& golden, const std::string& variant) {
  Batch batch;
  batch.fields["features"] = golden.tensor(variant + "/features");
  batch.fields["labels"] = golden.tensor(variant + "/labels");
  return batch;
}

}  // namespace colossal::test
