// Is the order of samples a permutation per epoch, equal to its published values, and different
// from epoch to epoch?
#include "data/sampler.hpp"

#include "data_helpers.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace colossal {
namespace {

std::vector<std::int64_t> all_of(const EpochOrder& order, std::int64_t size) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(order[i]);
  }
  return values;
}

std::vector<std::int64_t> identity(std::int64_t size) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<std::int64_t> feistel_all(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(feistel(i, size, seed, epoch));
  }
  return values;
}

TEST_CASE("the Feistel permutation equals its golden values", "[data]") {
  CHECK(feistel_all(10, 1234, 0) == std::vector<std::int64_t>{6, 8, 2, 9, 7, 0, 1, 3, 4, 5});
  CHECK(feistel_all(10, 1234, 1) == std::vector<std::int64_t>{7, 0, 1, 3, 6, 2, 9, 8, 4, 5});
  CHECK(feistel_all(17, 42, 0) ==
        std::vector<std::int64_t>{10, 4, 3, 2, 16, 6, 5, 12, 7, 0, 9, 15, 1, 14, 11, 13, 8});
  CHECK(feistel(0, 1'000'000, 1234, 0) == 342987);
  CHECK(feistel(1, 1'000'000, 1234, 0) == 505280);
  CHECK(feistel(2, 1'000'000, 1234, 0) == 178282);
}

TEST_CASE("every epoch order is a permutation", "[data]") {
  for (const std::int64_t size : {1, 2, 3, 10, 257, 4096, 65535, 65536, 70001}) {
    for (const std::int64_t epoch : {0, 1}) {
      std::vector<std::int64_t> values = all_of(EpochOrder(size, 7, epoch, true), size);
      std::ranges::sort(values);
      CHECK(values == identity(size));
    }
  }
}

TEST_CASE("orders differ between epochs and seeds, and repeat for the same ones", "[data]") {
  for (const std::int64_t size : {100, 70000}) {
    const auto order = all_of(EpochOrder(size, 7, 0, true), size);
    CHECK(order == all_of(EpochOrder(size, 7, 0, true), size));
    CHECK(order != all_of(EpochOrder(size, 7, 1, true), size));
    CHECK(order != all_of(EpochOrder(size, 8, 0, true), size));
    CHECK(order != identity(size));
  }
}

TEST_CASE("a small shuffle puts every sample at every place equally often", "[data]") {
  constexpr std::int64_t kSize = 5;
  constexpr std::int64_t kEpochs = 5000;
  std::vector<int> counts(kSize * kSize, 0);
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const EpochOrder order(kSize, 99, epoch, true);
    for (std::int64_t place = 0; place < kSize; ++place) {
      ++counts[static_cast<std::size_t>(place * kSize + order[place])];
    }
  }
  for (const int count : counts) {
    CHECK(std::abs(count - kEpochs / kSize) < 150);  // 5 standard deviations of 28
  }
}

TEST_CASE("without shuffle the order is the file's", "[data]") {
  CHECK(all_of(EpochOrder(50, 7, 3, false), 50) == identity(50));
}

TEST_CASE("a position outside the epoch is an internal error", "[data]") {
  const EpochOrder order(10, 7, 0, true);
  CHECK(test::error_of([&] { (void)order[10]; }).id() == "sample-position");
  CHECK(test::error_of([&] { (void)order[-1]; }).id() == "sample-position");
}

TEST_CASE("an epoch drops the samples that fill no whole batch, other ones each time", "[data]") {
  SampleOrder order(10, 4, 7, true);
  CHECK(order.samples_per_epoch() == 8);
  std::set<std::int64_t> seen;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    std::set<std::int64_t> once;
    for (std::int64_t i = 0; i < 8; ++i) {
      CHECK(order.epoch(epoch * 8 + i) == epoch);
      once.insert(order.index(epoch * 8 + i));
    }
    CHECK(once.size() == 8);
    seen.insert(once.begin(), once.end());
  }
  CHECK(seen.size() == 10);
}

TEST_CASE("positions may be asked for in any order", "[data]") {
  SampleOrder forward(100, 10, 7, true);
  SampleOrder backward(100, 10, 7, true);
  std::vector<std::int64_t> a;
  std::vector<std::int64_t> b;
  for (std::int64_t i = 0; i < 300; ++i) {
    a.push_back(forward.index(i));
    b.push_back(backward.index(299 - i));
  }
  std::ranges::reverse(b);
  CHECK(a == b);
}

TEST_CASE("a set smaller than one global batch is refused with both counts", "[data]") {
  const Error error = test::error_of([] { SampleOrder(7, 8, 1, true); });
  CHECK(error.id() == "data-too-small");
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(),
             Catch::Matchers::Contains("has 7 samples") && Catch::Matchers::Contains("= 8"));
}

}  // namespace
}  // namespace colossal
