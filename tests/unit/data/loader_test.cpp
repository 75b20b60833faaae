// Does every rank get its part of one global order, whatever the ranks, splits, workers and
// restarts?
#include "data/loader.hpp"

#include "core/hash.hpp"
#include "data/sampler.hpp"
#include "data_helpers.hpp"

#include <ATen/ops/full.h>

#include <atomic>
#include <chrono>
#include <pthread.h>
#include <set>
#include <signal.h>
#include <thread>
#include <vector>

namespace colossal {
namespace {

/// Dataset of numbers: row of sample i is filled with i. Fails at `bad`, waits at odd samples to
/// shuffle the workers.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -2) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  Batch read(std::span<const std::int64_t> indices) const override {
    ++reads;
    sigset_t blocked = {};
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    if (sigismember(&blocked, SIGTERM) == 0) {
      signals_open = true;
    }
    std::vector<at::Tensor> rows;
    at::Tensor tokens = at::full({std::ssize(indices), 2}, 0, at::kLong);
    for (std::int64_t row = 0; row < std::ssize(indices); ++row) {
      const std::int64_t index = indices[static_cast<std::size_t>(row)];
      check(index != bad_, ErrorKind::data, "bad-sample", "sample {} is bad", index);
      if (index % 2 == 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      tokens.data_ptr<std::int64_t>()[row * 2] = index;
      tokens.data_ptr<std::int64_t>()[row * 2 + 1] = index;
    }
    Batch batch;
    batch.fields["tokens"] = tokens;
    batch.fields["labels"] = tokens.clone();
    batch.fields["labels"].data_ptr<std::int64_t>()[0] = kIgnoreLabel;
    return batch;
  }
  std::string fingerprint() const override { return "numbers"; }
  std::string summary() const override { return "numbers"; }

  mutable std::atomic<int> reads = 0;
  mutable std::atomic<bool> signals_open = false;

 private:
  std::int64_t size_;
  std::int64_t bad_;
};

LoaderSpec spec_of(std::int64_t global, std::int64_t micro, int ranks, std::int64_t workers = 0) {
  return {.order = {.global_batch = global, .seed = 5},
          .micro_batch = micro,
          .num_micro_batches = global / micro / ranks,
          .workers = workers,
          .prefetch = 3};
}

std::vector<std::int64_t> samples_of(const Batch& batch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t row = 0; row < batch.at("tokens").size(0); ++row) {
    samples.push_back(test::row_of(batch, "tokens", row)[0]);
  }
  return samples;
}

/// The global batches of `steps` steps, put together from all ranks by first_row.
std::vector<std::vector<std::int64_t>> global_batches(const LoaderSpec& spec,
                                                      int ranks,
                                                      int steps) {
  const Numbers numbers(101);
  std::vector<std::vector<std::int64_t>> batches(
      static_cast<std::size_t>(steps),
      std::vector<std::int64_t>(static_cast<std::size_t>(spec.order.global_batch), -1));
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(numbers, spec, {rank, ranks}, {});
    for (auto& batch : batches) {
      for (const Batch& micro : loader.next().micro_batches) {
        std::ranges::copy(samples_of(micro), batch.begin() + micro.first_row);
      }
    }
  }
  return batches;
}

TEST_CASE("global batches are equal for any ranks, micro-batches and workers", "[data]") {
  const auto expected = global_batches(spec_of(16, 16, 1), 1, 20);  // 6 steps an epoch: 3 epochs
  for (const int ranks : {1, 2, 4}) {
    for (const std::int64_t micro : {1, 2, 4}) {
      for (const std::int64_t workers : {0, 1, 3}) {
        CHECK(global_batches(spec_of(16, micro, ranks, workers), ranks, 20) == expected);
      }
    }
  }
}

TEST_CASE("an epoch visits every sample once over all ranks; the next in another order", "[data]") {
  const Numbers numbers(96);
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(numbers, spec_of(12, 2, 3, 2), {rank, 3}, {});
    CHECK(loader.samples_per_epoch() == 96);
    for (int step = 0; step < 24; ++step) {
      CHECK(loader.epoch() == Approx(step / 8.0));
      for (const Batch& micro : loader.next().micro_batches) {
        std::ranges::copy(samples_of(micro),
                          std::back_inserter(epochs[static_cast<std::size_t>(step / 8)]));
      }
    }
  }
  for (const auto& epoch : epochs) {
    CHECK(std::set(epoch.begin(), epoch.end()).size() == 96);
    CHECK(epoch.size() == 96);
  }
  CHECK(epochs[0] != epochs[1]);
}

TEST_CASE("a loader resumed at any step goes on as if never stopped", "[data]") {
  const Numbers numbers(50);
  const LoaderSpec spec = spec_of(8, 4, 1, 2);
  std::vector<std::vector<std::int64_t>> whole;
  Loader loader(numbers, spec, {}, {});
  for (int step = 0; step < 14; ++step) {  // 6 steps an epoch: over two borders
    CHECK(loader.state().consumed == step * 8);
    whole.push_back(samples_of(loader.next().micro_batches.back()));
  }
  for (int start = 0; start < 14; ++start) {
    Loader resumed(numbers, spec, {}, {start * 8});
    for (int step = start; step < 14; ++step) {
      CHECK(samples_of(resumed.next().micro_batches.back()) ==
            whole[static_cast<std::size_t>(step)]);
    }
  }
}

TEST_CASE("a step counts its samples, labels and content", "[data]") {
  const Numbers numbers(40);
  std::uint64_t over_ranks = 0;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(numbers, spec_of(8, 2, 2), {rank, 2}, {});
    const StepBatch step = loader.next();
    CHECK(step.samples == 4);
    CHECK(step.labelled == 2 * 3);  // each micro-batch of 2 x 2 labels has one ignored
    over_ranks += step.data_hash;
  }
  Loader one(numbers, spec_of(8, 8, 1), {}, {});
  const StepBatch step = one.next();
  CHECK(step.data_hash == over_ranks);
  std::uint64_t expected = 0;
  for (const std::int64_t sample : samples_of(step.micro_batches.front())) {
    expected += splitmix64(static_cast<std::uint64_t>(sample));
  }
  CHECK(step.data_hash == expected);
}

TEST_CASE("samples without weight are in the batches and not in the sums", "[data]") {
  const Numbers numbers(10);
  for (const int ranks : {1, 4}) {
    std::int64_t samples = 0;
    std::uint64_t hash = 0;
    std::vector<std::int64_t> padding;
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderSpec spec = spec_of(8, 2, ranks, 1);
      spec.order.last_batch = LastBatch::pad;
      Loader loader(numbers, spec, {rank, ranks}, {8});
      CHECK(loader.samples_per_epoch() == 16);
      const StepBatch step = loader.next();
      for (const Batch& micro : step.micro_batches) {
        const auto rows = samples_of(micro);
        CHECK(rows.size() == 2);
        padding.push_back(std::ranges::count(rows, -1));
      }
      samples += step.samples;
      hash += step.data_hash;
      CHECK(loader.epoch() == 1);
    }
    CHECK(padding == std::vector<std::int64_t>{0, 2, 2, 2});
    CHECK(samples == 2);
    Loader whole(
        numbers,
        {.order = {.global_batch = 10, .seed = 5}, .micro_batch = 10, .num_micro_batches = 1},
        {},
        {});
    Loader first(numbers, spec_of(8, 8, 1), {}, {});
    CHECK(hash + first.next().data_hash == whole.next().data_hash);
  }
}

TEST_CASE("a worker's exception is rethrown by next, at its place and ever after", "[data]") {
  for (const std::int64_t workers : {0, 1, 3}) {
    LoaderSpec spec = spec_of(4, 2, 1, workers);
    spec.order.shuffle = false;
    const Numbers numbers(40, 9);
    Loader loader(numbers, spec, {}, {});
    CHECK(samples_of(loader.next().micro_batches.front()) == std::vector<std::int64_t>({0, 1}));
    CHECK(samples_of(loader.next().micro_batches.front()) == std::vector<std::int64_t>({4, 5}));
    CHECK(test::error_of([&] { (void)loader.next(); }).id() == "bad-sample");
    CHECK(loader.state().consumed == 8);
    CHECK(test::error_of([&] { (void)loader.next(); }).id() == "bad-sample");
  }
}

TEST_CASE("workers read ahead by prefetch micro-batches and no more", "[data]") {
  const Numbers numbers(400);
  Loader loader(numbers, spec_of(4, 2, 1, 2), {}, {});
  for (int wait = 0; wait < 1000 && numbers.reads < 3; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(numbers.reads == 3);
  (void)loader.next();
  for (int wait = 0; wait < 1000 && numbers.reads < 5; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(numbers.reads == 5);
}

TEST_CASE("workers never receive signals, the caller keeps its own mask", "[data]") {
  const Numbers numbers(40);
  Loader loader(numbers, spec_of(4, 2, 1, 2), {}, {});
  (void)loader.next();
  CHECK_FALSE(numbers.signals_open);
  sigset_t mask = {};
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  CHECK(sigismember(&mask, SIGTERM) == 0);
}

TEST_CASE("a loader whose numbers do not agree is refused", "[data]") {
  const Numbers numbers(40);
  LoaderSpec spec = spec_of(8, 2, 1);
  CHECK(test::error_of([&] { Loader(numbers, spec, {0, 2}, {}); }).id() == "loader-shape");
  spec = spec_of(64, 2, 1);
  CHECK(test::error_of([&] { Loader(numbers, spec, {}, {}); }).id() == "data-too-small");
}

TEST_CASE("evaluation visits each sample on exactly one rank, with equal batch counts", "[data]") {
  for (const std::int64_t size : {1, 5, 16, 33}) {
    for (const int ranks : {1, 2, 4}) {
      std::multiset<std::int64_t> seen;
      for (int rank = 0; rank < ranks; ++rank) {
        const EvalPlan plan(size, 3, {rank, ranks}, 0);
        CHECK(plan.num_batches() == EvalPlan(size, 3, {0, ranks}, 0).num_batches());
        CHECK(plan.covered() == size);
        for (std::int64_t k = 0; k < plan.num_batches(); ++k) {
          const auto rows = plan.indices(k);
          CHECK(rows.size() == 3);
          seen.insert(rows.begin(), rows.end());
        }
      }
      seen.erase(-1);
      CHECK(std::ssize(seen) == size);
      CHECK(std::ssize(std::set(seen.begin(), seen.end())) == size);
    }
  }
}

TEST_CASE("max_batches shortens an evaluation and says what is covered", "[data]") {
  const EvalPlan plan(100, 3, {1, 2}, 4);
  CHECK(plan.num_batches() == 4);
  CHECK(plan.covered() == 24);
  CHECK(EvalPlan(10, 3, {1, 2}, 4).num_batches() == 2);
}

}  // namespace
}  // namespace colossal
