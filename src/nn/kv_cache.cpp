// Which slot does each row of a batch continue, and where do its keys and values go?
#include "nn/kv_cache.hpp"

#include "core/error.hpp"
#include "nn/kernels/cached_attention.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace colossal {

KvCache::KvCache(std::int64_t num_slots, std::int64_t capacity)
    : capacity_(capacity), lengths_(static_cast<std::size_t>(num_slots), 0) {}

void KvCache::check_slot(std::int64_t slot) const {
  check(slot >= 0 && slot < num_slots(),
        ErrorKind::internal,
        "cache-slot",
        "there is no slot {} among {}",
        slot,
        num_slots());
}

std::int64_t KvCache::length(std::int64_t slot) const {
  check_slot(slot);
  return lengths_[static_cast<std::size_t>(slot)];
}

void KvCache::select(std::span<const std::int64_t> slots) {
  for (auto slot = slots.begin(); slot != slots.end(); ++slot) {
    check_slot(*slot);
    check(std::find(slots.begin(), slot, *slot) == slot,
          ErrorKind::internal,
          "cache-slot",
          "slot {} is selected for two rows",
          *slot);
  }
  selected_.assign(slots.begin(), slots.end());
}

void KvCache::advance(std::int64_t num_tokens) {
  for (const std::int64_t slot : selected_) {
    lengths_[static_cast<std::size_t>(slot)] += num_tokens;
  }
}

void KvCache::clear(std::int64_t slot) {
  check_slot(slot);
  lengths_[static_cast<std::size_t>(slot)] = 0;
}

int KvCache::add_layer() {
  layers_.emplace_back();
  return static_cast<int>(layers_.size()) - 1;
}

void KvCache::allocate(Layer& layer,
                       const at::Tensor& like,
                       const kernels::AttentionShape& shape) const {
  const std::int64_t kv = shape.num_kv_heads;
  const std::int64_t d = shape.head_dim;
  layer.keys = at::empty({num_slots(), kv, d, capacity_}, like.options());
  layer.values = at::empty({num_slots(), kv, capacity_, d}, like.options());
}

at::Tensor KvCache::attend(int layer,
                           const at::Tensor& qkv_bsd,
                           const kernels::AttentionShape& shape) {
  check(qkv_bsd.size(0) == std::ssize(selected_),
        ErrorKind::internal,
        "cache-rows",
        "a batch of {} rows with {} slots selected",
        qkv_bsd.size(0),
        selected_.size());
  check(shape.causal,
        ErrorKind::internal,
        "cache-causal",
        "attention that is not causal cannot go token by token");
  std::vector<std::int64_t> lengths;
  for (const std::int64_t slot : selected_) {
    lengths.push_back(length(slot));
    check(lengths.back() + qkv_bsd.size(1) <= capacity_,
          ErrorKind::internal,
          "cache-full",
          "slot {} holds {} of {} tokens, {} more do not fit",
          slot,
          lengths.back(),
          capacity_,
          qkv_bsd.size(1));
  }
  Layer& kept = layers_.at(static_cast<std::size_t>(layer));
  if (!kept.keys.defined()) {
    allocate(kept, qkv_bsd, shape);
  }
  return kernels::cached_attention(
      qkv_bsd.contiguous(), shape, {kept.keys, kept.values, selected_, lengths});
}

}  // namespace colossal
