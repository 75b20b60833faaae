// What does a model remember of the tokens it has seen? Keys and values of every attention core, a
// slot for each sequence.
#pragma once

#include "nn/kernels/attention.hpp"
#include "nn/layers.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace colossal {

/// Memory of generation, shared by the attention cores of one model: 2 * layers * num_kv_heads *
/// head_dim items a token. A forward pass adds the tokens of its batch to the selected slots:
/// select(), all blocks, advance(). Without autograd.
class KvCache {
 public:
  /// Slots of up to `capacity` tokens; memory is taken when a layer is first used.
  KvCache(std::int64_t num_slots, std::int64_t capacity);

  /// Sequences that fit, and tokens that fit of each.
  [[nodiscard]] std::int64_t num_slots() const noexcept { return std::ssize(lengths_); }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  /// Tokens that the slot holds. Errors: internal "cache-slot".
  [[nodiscard]] std::int64_t length(std::int64_t slot) const;

  /// Row r of the next batch continues slots[r]. Errors: internal "cache-slot" for a slot that does
  /// not exist or is named twice.
  void select(std::span<const std::int64_t> slots);
  /// All blocks have seen `num_tokens` new tokens a row: they count from here on.
  void advance(std::int64_t num_tokens);
  /// Forgets a slot's tokens. Errors: internal "cache-slot".
  void clear(std::int64_t slot);

  /// A number for an attention core that will call attend().
  [[nodiscard]] int add_layer();
  /// Causal attention of the batch's new tokens over their slots, see kernels::cached_attention.
  /// Errors: internal "cache-rows" unless there is one row per selected slot, "cache-full",
  /// "cache-causal" for attention that sees the future.
  [[nodiscard]] at::Tensor attend(int layer,
                                  const at::Tensor& qkv_bsd,
                                  const kernels::AttentionShape& shape);

 private:
  struct Layer {
    at::Tensor keys;
    at::Tensor values;
  };

  void check_slot(std::int64_t slot) const;
  void allocate(Layer& layer, const at::Tensor& like, const kernels::AttentionShape& shape) const;

  std::int64_t capacity_;
  std::vector<std::int64_t> lengths_;   // by slot
  std::vector<std::int64_t> selected_;  // slot of each row
  std::vector<Layer> layers_;
};

/// The factory of tensor size 1 for generation: its attention cores continue the selected slots of
/// `cache` in place of computing whole sequences. Keeps references to both.
[[nodiscard]] std::unique_ptr<LayerFactory> serial_factory(const ParallelContext& context,
                                                           KvCache& cache);

}  // namespace colossal
