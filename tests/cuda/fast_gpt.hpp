// Which small model runs the kernels of a large one?
#pragma once

#include "support/tiny_models.hpp"

#include <cstdint>

namespace colossal::test {

/// tiny_gpt() with sizes and choices for which 16 bits go the ways that speed comes from: no
/// dropout, heads of 64, whole tiles of tokens, gelu_tanh, rows in packs of 16 bytes.
inline Config fast_gpt(Precision precision, std::int64_t samples = 16) {
  Config config = tiny_gpt();
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 512;
  config.model.vocab_pad_multiple = 64;
  config.model.activation = ActivationKind::gelu_tanh;
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  config.model.max_seq_length = 64;
  config.data.seq_length = 64;
  config.data.num_samples = 5 * samples;
  config.train.global_batch_size = samples;
  config.train.micro_batch_size = samples;
  config.train.precision = precision;
  config.train.cuda_graph = CudaGraph::off;
  config.optimizer.lr = 2e-3;
  config.optimizer.eps = 1e-6;
  config.eval.micro_batch_size = samples;
  return config;
}

}  // namespace colossal::test
