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
  SampleOrder order({{10}}, {.global_batch = 4, .seed = 7});
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
  SampleOrder forward({{100}}, {.global_batch = 10, .seed = 7});
  SampleOrder backward({{100}}, {.global_batch = 10, .seed = 7});
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
  const Error error = test::error_of([] { SampleOrder({{7}}, {.global_batch = 8}); });
  CHECK(error.id() == "data-too-small");
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(),
             Catch::Matchers::Contains("has 7 samples") && Catch::Matchers::Contains("= 8"));
}

TEST_CASE("pad fills the last batch with samples without weight", "[data]") {
  SampleOrder order({{10}}, {.global_batch = 4, .seed = 7, .last_batch = LastBatch::pad});
  CHECK(order.samples_per_epoch() == 12);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 12; ++i) {
      indices.push_back(order.index(epoch * 12 + i));
    }
    CHECK(indices[10] == -1);
    CHECK(indices[11] == -1);
    indices.resize(10);
    std::ranges::sort(indices);
    CHECK(indices == identity(10));
  }
  CHECK(positions_per_epoch(12, 4, LastBatch::pad) == 12);
  CHECK(positions_per_epoch(3, 4, LastBatch::pad) == 4);
}

TEST_CASE("wrap goes on with the next epoch inside a batch", "[data]") {
  SampleOrder order({{10}}, {.global_batch = 4, .seed = 7, .last_batch = LastBatch::wrap});
  CHECK(order.samples_per_epoch() == 10);
  SampleOrder whole({{10}}, {.global_batch = 10, .seed = 7});
  for (std::int64_t position = 0; position < 40; ++position) {
    CHECK(order.index(position) == whole.index(position));
  }
  SampleOrder tiny({{2}},
                   {.global_batch = 8, .last_batch = LastBatch::wrap});  // more ranks than samples
  std::set<std::int64_t> seen;
  for (std::int64_t position = 0; position < 8; ++position) {
    seen.insert(tiny.index(position));
  }
  CHECK(seen == std::set<std::int64_t>{0, 1});
}

TEST_CASE("a blend follows the rule of its source from the first sample on", "[data]") {
  // argmax_d(w_d * max(i, 1) - count_d), written down by hand for weights 1/2, 1/3, 1/6
  Blend blend({{10, 3}, {10, 2}, {10, 1}});
  const std::vector<std::size_t> expected = {0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1, 0};
  std::vector<std::int64_t> counts(3, 0);
  for (std::int64_t i = 0; i < 12; ++i) {
    const Blend::Draw draw = blend.at(i);
    INFO(i);
    CHECK(draw.source == expected[static_cast<std::size_t>(i)]);
    CHECK(draw.count == counts[draw.source]++);
  }
}

TEST_CASE("every beginning of a blend holds the shares of its weights, to one sample", "[data]") {
  const std::vector<SampleSource> sources = {{10, 0.7}, {3, 5}, {900, 1.1}, {1, 0.01}};
  Blend blend(sources);
  std::vector<double> counts(sources.size(), 0);
  for (std::int64_t i = 0; i < 20000; ++i) {
    ++counts[blend.at(i).source];
    for (std::size_t d = 0; d < sources.size(); ++d) {
      const double due = sources[d].weight / 6.81 * static_cast<double>(i + 1);
      REQUIRE(std::abs(counts[d] - due) < 1.5);
    }
  }
}

TEST_CASE("a blended order visits each source in epochs of its own", "[data]") {
  const OrderSpec spec{.global_batch = 4, .seed = 7};
  SampleOrder order({{6, 2}, {6, 1}}, spec);
  CHECK(order.samples_per_epoch() == 12);
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (std::int64_t position = 0; position < 36; ++position) {
    const std::int64_t index = order.index(position);
    (index < 6 ? first : second).push_back(index);
  }
  REQUIRE(first.size() == 24);
  REQUIRE(second.size() == 12);
  for (std::ptrdiff_t begin = 0; begin < 24; begin += 6) {
    const std::set<std::int64_t> epoch(first.begin() + begin, first.begin() + begin + 6);
    CHECK(epoch == std::set<std::int64_t>{0, 1, 2, 3, 4, 5});
  }
  const std::set<std::int64_t> epoch(second.begin(), second.begin() + 6);
  CHECK(epoch == std::set<std::int64_t>{6, 7, 8, 9, 10, 11});
  std::vector<std::int64_t> shifted(second.begin(), second.begin() + 6);
  for (std::int64_t& index : shifted) {
    index -= 6;
  }
  CHECK(shifted != std::vector(first.begin(), first.begin() + 6));  // equal sizes, other orders
  // the position alone decides, wherever a stream was resumed
  for (const std::int64_t start : {35, 0, 17, 18}) {
    SampleOrder resumed({{6, 2}, {6, 1}}, spec);
    CHECK(resumed.index(start) == order.index(start));
  }
}

}  // namespace
}  // namespace colossal
