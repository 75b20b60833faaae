// In which order are samples visited? A pure function of (seed, epoch): never of ranks, workers or
// batch splits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace colossal {

/// Permutation of [0, size) for one epoch. N >= 2^16: 6-round Feistel network with cycle walking,
/// no memory; smaller N: Fisher-Yates driven by the same keyed generator
/// (optimizers-and-recipes 7.7). shuffle = false: identity.
class EpochOrder {
 public:
  /// Order of `size` samples in epoch `epoch` of the run with this seed.
  EpochOrder(std::int64_t size, std::uint64_t seed, std::int64_t epoch, bool shuffle);
  /// Sample at `position`. Errors: internal "sample-position" outside [0, size).
  [[nodiscard]] std::int64_t operator[](std::int64_t position) const;

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  bool shuffle_;
  std::vector<std::int64_t> table_;
};

/// Feistel permutation of [0, size), exposed for its golden values.
[[nodiscard]] std::int64_t feistel(std::int64_t position,
                                   std::int64_t size,
                                   std::uint64_t seed,
                                   std::int64_t epoch);

/// Maps absolute sample positions to dataset indices. An epoch has size - size % global_batch
/// samples (last_batch: drop).
class SampleOrder {
 public:
  /// Errors: data "data-too-small" if an epoch holds no whole global batch.
  SampleOrder(std::int64_t size, std::int64_t global_batch, std::uint64_t seed, bool shuffle);
  /// Positions of one epoch: whole global batches only.
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept { return per_epoch_; }
  /// Epoch of absolute position P.
  [[nodiscard]] std::int64_t epoch(std::int64_t position) const noexcept {
    return position / per_epoch_;
  }
  /// Dataset index of absolute position P >= 0. Not thread-safe (caches the epoch's table).
  [[nodiscard]] std::int64_t index(std::int64_t position);

 private:
  std::int64_t size_;
  std::int64_t per_epoch_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t cached_epoch_ = -1;
  std::optional<EpochOrder> order_;
};

}  // namespace colossal
