// How do worker threads deliver micro-batches in order? A ring of slots, numbered jobs, one lock.
#include "data/loader.hpp"

#include "config/batch_sizes.hpp"
#include "core/hash.hpp"
#include "data/sampler.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <signal.h>
#include <stop_token>
#include <thread>
#include <utility>

namespace colossal {
namespace {

/// A micro-batch that has been read, with what the step adds up.
struct Read {
  Batch batch;
  std::int64_t labelled = 0;
  std::int64_t samples = 0;
  std::uint64_t data_hash = 0;
};

/// Reads the micro-batch of any job number; one instance per thread.
class Reader {
 public:
  Reader(const Dataset& dataset, const LoaderSpec& spec, DataShard shard, LoaderState start)
      : dataset_(dataset),
        spec_(spec),
        shard_(shard),
        start_(start),
        order_(dataset.sources(), spec.order) {}

  /// Positions of one epoch.
  [[nodiscard]] std::int64_t samples_per_epoch() const { return order_.samples_per_epoch(); }

  /// Job k is the k-th micro-batch from the start, whatever steps they belong to.
  Read read(std::int64_t job) {
    const std::int64_t first =
        start_.consumed + (job * shard_.count + shard_.index) * spec_.micro_batch;
    std::vector<std::int64_t> indices;
    Read result;
    for (std::int64_t position = first; position < first + spec_.micro_batch; ++position) {
      indices.push_back(order_.index(position));
      if (indices.back() >= 0) {
        ++result.samples;
        result.data_hash += splitmix64(static_cast<std::uint64_t>(indices.back()));
      }
    }
    result.batch = dataset_.read(indices);
    // A plain loop: an ATen reduction here would start a second pool of OpenMP threads.
    const at::Tensor& labels = result.batch.at("labels");
    const std::span values(labels.const_data_ptr<std::int64_t>(),
                           static_cast<std::size_t>(labels.numel()));
    result.labelled = std::ssize(values) - std::ranges::count(values, kIgnoreLabel);
    return result;
  }

 private:
  const Dataset& dataset_;
  LoaderSpec spec_;
  DataShard shard_;
  LoaderState start_;
  SampleOrder order_;
};

/// What a worker leaves in a slot of the ring.
struct Slot {
  std::optional<Read> read;
  std::exception_ptr error;
};

/// Runs `body` with all signals blocked, so that threads made by it never receive the process's
/// signals.
template <class Body>
void with_signals_blocked(const Body& body) {
  sigset_t all = {};
  sigset_t before = {};
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  body();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Bounded, ordered queue: job k may start once job k - slots has been taken, and is taken after
/// job k - 1.
class Prefetcher {
 public:
  Prefetcher(const Reader& prototype, std::int64_t num_workers, std::int64_t num_slots)
      : slots_(static_cast<std::size_t>(num_slots)) {
    with_signals_blocked([&] {
      for (std::int64_t i = 0; i < num_workers; ++i) {
        add_worker(prototype);
      }
    });
  }

  /// The next job's result. After an error every later call throws it again.
  Read take() {
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(taken_);
    filled_.wait(lock, [&] { return slot.read.has_value() || slot.error; });
    if (slot.error) {
      std::rethrow_exception(slot.error);
    }
    Read result = std::move(*slot.read);
    slot.read.reset();
    ++taken_;
    freed_.notify_all();
    return result;
  }

 private:
  void add_worker(const Reader& prototype) {
    workers_.emplace_back(
        [this, prototype](const std::stop_token& stop) { work(stop, Reader(prototype)); });
  }

  Slot& slot_of(std::int64_t job) { return slots_[static_cast<std::size_t>(job) % slots_.size()]; }

  void work(const std::stop_token& stop, Reader reader) {
    std::unique_lock lock(mutex_);
    while (freed_.wait(lock, stop, [&] { return started_ < taken_ + std::ssize(slots_); })) {
      const std::int64_t job = started_++;
      lock.unlock();
      Slot result;
      try {
        result.read = reader.read(job);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      slot_of(job) = std::move(result);
      filled_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any freed_;
  std::condition_variable filled_;
  std::vector<Slot> slots_;
  std::int64_t started_ = 0;
  std::int64_t taken_ = 0;
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& dataset, const LoaderSpec& spec_in, DataShard shard_in, LoaderState state_in)
      : spec(spec_in),
        sizes(spec.order.global_batch, spec.ramp),
        shard(shard_in),
        state(state_in),
        reader(dataset, spec, shard, state),
        samples_per_epoch(reader.samples_per_epoch()) {
    check(spec.order.global_batch == spec.micro_batch * spec.num_micro_batches * shard.count,
          ErrorKind::internal,
          "loader-shape",
          "global batch {} is not micro-batch {} x {} micro-batches x {} data ranks",
          spec.order.global_batch,
          spec.micro_batch,
          spec.num_micro_batches,
          shard.count);
    if (spec.workers > 0) {
      prefetcher.emplace(reader, spec.workers, std::max(spec.prefetch, std::int64_t{1}));
    }
  }

  Read read_next() { return prefetcher ? prefetcher->take() : reader.read(next_job); }

  /// Samples of all ranks in one micro-batch each.
  [[nodiscard]] std::int64_t slice() const { return spec.micro_batch * shard.count; }

  LoaderSpec spec;
  BatchSizes sizes;
  DataShard shard;
  LoaderState state;
  Reader reader;  // used here only without workers
  std::int64_t samples_per_epoch;
  std::int64_t next_job = 0;
  std::optional<Prefetcher> prefetcher;
};

Loader::Loader(const Dataset& dataset, const LoaderSpec& spec, DataShard shard, LoaderState state)
    : impl_(std::make_unique<Impl>(dataset, spec, shard, state)) {}

Loader::~Loader() = default;

StepBatch Loader::next() {
  StepBatch step;
  const std::int64_t samples = impl_->sizes.at(impl_->state.consumed);
  const std::int64_t slice = impl_->slice();
  check(samples % slice == 0,
        ErrorKind::internal,
        "loader-shape",
        "a step of {} samples is not made of micro-batches of {} over all ranks",
        samples,
        slice);
  for (std::int64_t micro = 0; micro < samples / slice; ++micro) {
    Read read = impl_->read_next();
    read.batch.first_row = micro * slice + impl_->shard.index * impl_->spec.micro_batch;
    ++impl_->next_job;
    step.labelled += read.labelled;
    step.labelled_each.push_back(read.labelled);
    step.data_hash += read.data_hash;
    step.samples += read.samples;
    step.micro_batches.push_back(std::move(read.batch));
  }
  impl_->state.consumed += samples;
  return step;
}

LoaderState Loader::state() const noexcept {
  return impl_->state;
}

double Loader::epoch() const noexcept {
  return static_cast<double>(impl_->state.consumed) / static_cast<double>(impl_->samples_per_epoch);
}

std::int64_t Loader::samples_per_epoch() const noexcept {
  return impl_->samples_per_epoch;
}

EvalPlan::EvalPlan(std::int64_t size,
                   std::int64_t micro_batch,
                   DataShard shard,
                   std::int64_t max_batches)
    : size_(size), micro_batch_(micro_batch), shard_(shard) {
  const std::int64_t rows = micro_batch * shard.count;
  const std::int64_t all = (size + rows - 1) / rows;
  num_batches_ = max_batches > 0 ? std::min(all, max_batches) : all;
}

std::vector<std::int64_t> EvalPlan::indices(std::int64_t k) const {
  std::vector<std::int64_t> rows;
  const std::int64_t first = (k * shard_.count + shard_.index) * micro_batch_;
  for (std::int64_t index = first; index < first + micro_batch_; ++index) {
    rows.push_back(index < size_ ? index : -1);
  }
  return rows;
}

std::int64_t EvalPlan::covered() const noexcept {
  return std::min(size_, num_batches_ * micro_batch_ * shard_.count);
}

}  // namespace colossal
