// How do samples become this rank's batches? Prefetched by worker threads, delivered in order,
// resumable exactly.
#pragma once

#include "core/batch.hpp"
#include "data/dataset.hpp"
#include "data/sampler.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace colossal {

/// Which part of every micro-batch this data coordinate reads (same on pipeline, sequence and
/// tensor peers).
struct DataShard {
  int index = 0;
  int count = 1;
};

/// Position of the training stream: global samples consumed. Epoch and offset derive from it, so
/// another number of ranks or another micro-batch size resumes at the same sample.
struct LoaderState {
  std::int64_t consumed = 0;
};

/// How the stream is ordered and cut: global batch = micro_batch * num_micro_batches * data ranks,
/// after a ramp of steps of fewer micro-batches.
struct LoaderSpec {
  OrderSpec order;
  std::int64_t micro_batch = 0;
  std::int64_t num_micro_batches = 0;
  std::optional<BatchRampConfig> ramp = {};
  std::int64_t workers = 2;
  std::int64_t prefetch = 4;  ///< micro-batches
};

/// One optimizer step's data of this data coordinate.
struct StepBatch {
  std::vector<Batch> micro_batches;         ///< first_row set; step and training are the trainer's
  std::int64_t labelled = 0;                ///< labels != -100 in them
  std::vector<std::int64_t> labelled_each;  ///< the same, of each micro-batch
  std::uint64_t data_hash = 0;  ///< sum mod 2^64 of splitmix64 of the dataset indices read here
  std::int64_t samples = 0;     ///< read here, those without weight not counted
};

/// Training stream. Micro-batch j of replica d of n reads positions consumed + (j*n + d)*b + [0,
/// b), whatever the size of the step.
class Loader {
 public:
  /// `dataset` must outlive the loader. Errors as SampleOrder.
  Loader(const Dataset& dataset, const LoaderSpec& spec, DataShard shard, LoaderState state);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step's batch, of BatchSizes::at(state().consumed) positions over all ranks. An
  /// exception of a worker is rethrown here.
  [[nodiscard]] StepBatch next();
  /// Position after the batches that next() returned (prefetched ones do not count).
  [[nodiscard]] LoaderState state() const noexcept;
  /// Epoch of the next sample as a real number (for logs).
  [[nodiscard]] double epoch() const noexcept;
  /// Positions of one epoch over all ranks (samples, and those without weight).
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The batches of one evaluation pass for this data coordinate: sample i of the set goes to exactly
/// one rank, once; rows beyond the set carry no labels. All ranks get the same number of batches.
class EvalPlan {
 public:
  /// `size` samples in micro-batches of `micro_batch`; `max_batches` per rank, 0: all.
  EvalPlan(std::int64_t size,
           std::int64_t micro_batch,
           DataShard shard,
           std::int64_t max_batches /* 0: all */);
  /// Batches of every rank.
  [[nodiscard]] std::int64_t num_batches() const noexcept { return num_batches_; }
  /// Dataset indices of batch k here; -1: padding row.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t k) const;
  /// Samples visited by all ranks together.
  [[nodiscard]] std::int64_t covered() const noexcept;

 private:
  std::int64_t size_;
  std::int64_t micro_batch_;
  DataShard shard_;
  std::int64_t num_batches_;
};

}  // namespace colossal
