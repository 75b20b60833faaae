// How does a trained model go on token by token? The blocks of training, with memory of what they
// have seen.
#pragma once

#include "config/config.hpp"
#include "mesh/context.hpp"
#include "nn/block.hpp"
#include "nn/kv_cache.hpp"
#include "nn/layers.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace colossal {

/// A model that answers "what comes next" for several sequences at once, without gradients and
/// dropout. Results of a sequence do not depend, bit for bit, on the others.
class Decoder {
 public:
  /// Builds the model of a resolved configuration for up to `num_slots` sequences; its weights are
  /// the initial ones until load(). Errors: config "not-generative" for a model type that has no
  /// next token; internal "too-many-slots" beyond kernels::kFewRows.
  Decoder(const Config& config, std::int64_t num_slots);

  /// Reads the weights of a checkpoint of any number of processes, and nothing else of it. Errors:
  /// checkpoint, as load_tensors().
  void load(const std::filesystem::path& checkpoint);

  /// Logits [vocab_size] of the token after `tokens`, which replace what the slot held. Errors:
  /// data "token-range" for an id outside the vocabulary or more tokens than capacity().
  [[nodiscard]] at::Tensor prefill(std::int64_t slot, std::span<const std::int64_t> tokens);
  /// Logits [n, vocab_size] of the tokens after tokens[i], each the next one of slots[i]. Errors:
  /// as prefill().
  [[nodiscard]] at::Tensor step(std::span<const std::int64_t> slots,
                                std::span<const std::int64_t> tokens);

  /// Tokens that the model can see at once.
  [[nodiscard]] std::int64_t capacity() const noexcept { return cache_.capacity(); }
  /// Token ids that it knows.
  [[nodiscard]] std::int64_t vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] std::int64_t num_slots() const noexcept { return cache_.num_slots(); }
  /// Tokens that the slot holds.
  [[nodiscard]] std::int64_t length(std::int64_t slot) const { return cache_.length(slot); }
  /// All parameters, for tests that set weights.
  [[nodiscard]] std::span<Parameter* const> parameters() const noexcept { return parameters_; }

 private:
  /// Runs all blocks on tokens_bs of these slots. Returns logits [B, vocab_size] after the last
  /// token of each row.
  [[nodiscard]] at::Tensor run(std::span<const std::int64_t> slots, const at::Tensor& tokens_bs);

  ParallelContext context_;
  std::int64_t vocabulary_;
  KvCache cache_;
  std::unique_ptr<LayerFactory> layers_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Parameter*> parameters_;
};

}  // namespace colossal
