// What do the tests of generation share? Tiny models whose logits are far from flat, and errors by
// id.
#pragma once

#include "config/config.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/local_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::test {

/// An untrained GPT that prefers some tokens clearly: 2 layers, 61 tokens, 12 positions, fp64,
/// dropout set (generation must ignore it).
inline Config opinionated_gpt() {
  Config config;
  config.run.seed = 11;
  config.train.precision = Precision::fp64;
  ModelConfig& m = config.model;
  m.num_layers = 2;
  m.hidden_size = 32;
  m.num_heads = m.num_kv_heads = 4;
  m.ffn_hidden_size = 48;
  m.vocab_size = 61;
  m.vocab_pad_multiple = 16;
  m.max_seq_length = 12;
  m.dropout = m.attention_dropout = 0.2;
  m.init_std = 0.4;
  return config;
}

/// Tokens below `vocabulary` that look random, the same every time for one seed.
inline std::vector<std::int64_t> tokens_like(std::int64_t count,
                                             std::int64_t vocabulary,
                                             unsigned seed = 1) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    tokens.push_back(static_cast<std::int64_t>(seed >> 8U) % vocabulary);
  }
  return tokens;
}

/// Logits [S, vocabulary] of a whole sequence by the model without a cache.
inline at::Tensor full_logits(const LocalModel& model, std::span<const std::int64_t> tokens) {
  const at::NoGradGuard no_grad;
  Batch batch;
  batch.training = false;
  at::Tensor row = at::empty({1, std::ssize(tokens)}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), row.mutable_data_ptr<std::int64_t>());
  batch.fields["tokens"] = row;
  return model.forward(batch)["logits"].select(0, 0);
}

/// A decoder whose ids are bytes.
inline std::string bytes_of(std::span<const std::int64_t> ids) {
  std::string text;
  for (const std::int64_t id : ids) {
    text.push_back(static_cast<char>(id));
  }
  return text;
}

/// Fails the test unless `call` throws this error.
inline void require_error(ErrorKind kind, std::string_view id, const std::function<void()>& call) {
  try {
    call();
    FAIL("no error " << id);
  } catch (const Error& error) {
    INFO(error.what());
    REQUIRE(error.id() == id);
    REQUIRE(error.kind() == kind);
  }
}

}  // namespace colossal::test
