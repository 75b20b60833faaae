// Do files with weights become one dataset whose samples come in the shares of the weights,
// whatever the ranks?
#include "data/blend.hpp"

#include "data/loader.hpp"
#include "data_helpers.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <map>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Catch::Matchers::Contains;
using test::error_of;
using test::row_of;
using test::TempDir;
using test::write_file;

/// Two texts, of 'a' and of 'b', the first three times as heavy.
class TwoTexts {
 public:
  explicit TwoTexts(std::int64_t num_a = 41, std::int64_t num_b = 21) {
    config_ = test::text_config({write_file(folder_.path(), "a.txt", std::string(num_a, 'a')),
                                 write_file(folder_.path(), "b.txt", std::string(num_b, 'b'))},
                                4);
    config_.train[0].weight = 3;
    config_.train[1].weight = 1;
  }
  [[nodiscard]] std::unique_ptr<Dataset> open(Split split = Split::train) const {
    return open_dataset({.data = config_, .vocab_size = 256, .seed = 1, .split = split});
  }
  DataConfig& config() { return config_; }

 private:
  TempDir folder_;
  DataConfig config_;
};

TEST_CASE("samples of weighted files are numbered one after another", "[data]") {
  const TwoTexts texts;
  const auto set = texts.open();
  REQUIRE(set->size() == 15);
  const std::vector<SampleSource> sources = set->sources();
  REQUIRE(sources.size() == 2);
  CHECK(sources[0].size == 10);
  CHECK(sources[0].weight == 3);
  CHECK(sources[1].size == 5);
  const Batch batch = set->read(std::vector<std::int64_t>{14, 0, -1, 10, 9});
  CHECK(batch.at("tokens").sizes() == at::IntArrayRef({5, 4}));
  const std::array<std::int64_t, 5> expected = {'b', 'a', 0, 'b', 'a'};
  for (std::size_t row = 0; row < expected.size(); ++row) {
    const auto tokens = row_of(batch, "tokens", static_cast<std::int64_t>(row));
    CHECK(tokens == std::vector<std::int64_t>(4, expected[row]));
  }
  CHECK(row_of(batch, "labels", 2) == std::vector<std::int64_t>(4, kIgnoreLabel));
  CHECK(row_of(batch, "labels", 3) == std::vector<std::int64_t>(4, 'b'));
  CHECK(error_of([&] { (void)set->read(std::array<std::int64_t, 1>{15}); }).id() == "sample-index");
}

TEST_CASE("the stream holds the shares of the weights on any number of ranks", "[data]") {
  const TwoTexts texts;
  const auto set = texts.open();
  for (const int ranks : {1, 2, 4}) {
    std::map<std::int64_t, int> count;
    for (int rank = 0; rank < ranks; ++rank) {
      Loader loader(*set,
                    {.order = {.global_batch = 8, .seed = 3},
                     .micro_batch = 8 / ranks,
                     .num_micro_batches = 1,
                     .workers = 2},
                    {rank, ranks},
                    {});
      for (int step = 0; step < 50; ++step) {
        const Batch batch = std::move(loader.next().micro_batches.front());
        for (std::int64_t row = 0; row < 8 / ranks; ++row) {
          ++count[row_of(batch, "tokens", row)[0]];
        }
      }
    }
    CHECK(count['a'] == 300);
    CHECK(count['b'] == 100);
  }
}

TEST_CASE("a weighted stream resumes anywhere as if never stopped", "[data]") {
  const TwoTexts texts;
  const auto set = texts.open();
  const LoaderSpec spec{.order = {.global_batch = 4, .seed = 3},
                        .micro_batch = 4,
                        .num_micro_batches = 1,
                        .workers = 2};
  std::vector<std::uint64_t> whole;
  Loader loader(*set, spec, {}, {});
  for (int step = 0; step < 20; ++step) {
    whole.push_back(loader.next().data_hash);
  }
  for (const int start : {1, 7, 19}) {
    Loader resumed(*set, spec, {}, {start * 4});
    for (int step = start; step < 20; ++step) {
      CHECK(resumed.next().data_hash == whole[static_cast<std::size_t>(step)]);
    }
  }
}

TEST_CASE("the summary states shares, the fingerprint follows weights", "[data]") {
  TwoTexts texts;
  const std::string before = texts.open()->fingerprint();
  CHECK_THAT(texts.open()->summary(),
             Contains("75.00 % ") && Contains("a.txt: 41 tokens, 10 samples; 25.00 % ") &&
                 Contains("b.txt: 21 tokens, 5 samples"));
  texts.config().train[1].weight.reset();  // stands for 1
  CHECK(texts.open()->fingerprint() == before);
  texts.config().train[1].weight = 2;
  CHECK(texts.open()->fingerprint() != before);
  texts.config().train[0].weight.reset();
  texts.config().train[1].weight.reset();
  CHECK(texts.open()->sources().size() == 1);  // no weight at all: one stream of both files
  CHECK(texts.open()->size() == (41 + 1 + 21 - 1) / 4);
}

TEST_CASE("every weighted file must hold a sample of its own", "[data]") {
  const TwoTexts texts(41, 4);
  CHECK_THAT(error_of([&] { (void)texts.open(); }).what(), Contains("b.txt: 4 tokens"));
}

}  // namespace
}  // namespace colossal
