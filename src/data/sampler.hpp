// In which order are samples visited? A pure function of (seed, epoch): never of ranks, workers or
// batch splits.
#pragma once

#include "config/config.hpp"

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

/// Samples that are numbered one after another and drawn with one weight.
struct SampleSource {
  std::int64_t size = 0;
  double weight = 1;
};

/// Which source sample i of a weighted stream comes from: the d with the largest
/// w_d * max(i, 1) - (samples drawn from d before i), the first of equals; weights are divided by
/// their sum. So any first i samples hold w_d * i of source d, to about one. Source:
/// optimizers-and-recipes 7.1.
class Blend {
 public:
  /// A draw: the source, and how many samples were drawn from it before.
  struct Draw {
    std::size_t source = 0;
    std::int64_t count = 0;
  };

  explicit Blend(const std::vector<SampleSource>& sources);
  /// The draw at `position` >= 0. Walks there from the last position asked for, or from 0 if that
  /// lies behind. Not thread-safe.
  [[nodiscard]] Draw at(std::int64_t position);

 private:
  [[nodiscard]] std::size_t choose() const;

  std::vector<double> weights_;
  std::vector<std::int64_t> counts_;  ///< draws before next_
  std::int64_t next_ = 0;
};

/// How a stream of samples is cut into epochs and ordered.
struct OrderSpec {
  std::int64_t global_batch = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  LastBatch last_batch = LastBatch::drop;
};

/// Positions of one epoch of `size` samples: whole global batches that the samples fill (drop) or
/// touch (pad), or just the samples (wrap).
[[nodiscard]] std::int64_t positions_per_epoch(std::int64_t size,
                                               std::int64_t global_batch,
                                               LastBatch last_batch);

/// Maps absolute positions of the training stream to dataset indices. One source: epochs of
/// positions_per_epoch(), each with an order of its own. Several: Blend says which source comes;
/// each source goes through epochs of its own, none of its samples left out, and an epoch of the
/// stream is as many positions as there are samples.
class SampleOrder {
 public:
  /// Errors: data "data-too-small" if an epoch holds no position.
  SampleOrder(std::vector<SampleSource> sources, const OrderSpec& spec);
  /// Positions of one epoch.
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept { return per_epoch_; }
  /// Epoch of absolute position P.
  [[nodiscard]] std::int64_t epoch(std::int64_t position) const noexcept {
    return position / per_epoch_;
  }
  /// Dataset index of absolute position P >= 0; -1: a sample without weight that fills the last
  /// batch of an epoch. Not thread-safe (caches tables).
  [[nodiscard]] std::int64_t index(std::int64_t position);

 private:
  /// Where a source begins in the dataset, and its order in the epoch that was last asked for.
  struct Source {
    std::int64_t first = 0;
    std::int64_t size = 0;
    std::uint64_t seed = 0;
    std::int64_t epoch = -1;
    std::optional<EpochOrder> order = {};
  };

  [[nodiscard]] std::int64_t index_in(Source& source, std::int64_t epoch, std::int64_t place) const;

  bool shuffle_;
  std::vector<Source> sources_;
  std::optional<Blend> blend_;  ///< with several sources
  std::int64_t per_epoch_ = 0;
};

}  // namespace colossal
