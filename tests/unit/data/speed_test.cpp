// Are tokens delivered faster than any model eats them? From the page cache, by one worker thread.
#include "data/loader.hpp"
#include "data_helpers.hpp"
#include "support/temp_dir.hpp"
#include "support/token_files.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace colossal {
namespace {

constexpr std::int64_t kSequence = 1024;
constexpr std::int64_t kBatch = 32;
constexpr int kSteps = 200;

/// Tokens a second of CPU time (all threads) and of the clock.
struct Rate {
  double per_cpu_second = 0;
  double per_second = 0;
};

Rate rate_of(const Dataset& set) {
  Loader loader(set,
                {.order = {.global_batch = kBatch, .seed = 1},
                 .micro_batch = kBatch,
                 .num_micro_batches = 1,
                 .workers = 1},
                {},
                {});
  (void)loader.next();  // the thread runs, the pages are there
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < kSteps; ++step) {
    (void)loader.next();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  constexpr double kTokens = kSequence * kBatch * kSteps;
  return {kTokens / cpu_seconds, kTokens / seconds.count()};
}

TEST_CASE("tokens are loaded at 20 million a second and core", "[speed]") {
  const test::TempDir folder;
  std::vector<std::vector<std::int64_t>> documents;
  for (std::int64_t i = 0; i < 8000; ++i) {
    documents.push_back(test::ids_from(i % 40000, 500));
  }
  DataConfig config =
      test::text_config({test::write_megatron(folder.path(), "a", documents)}, kSequence);
  config.type = DataType::tokens;
  for (const Packing packing : {Packing::concat, Packing::greedy}) {
    config.packing = packing;
    const auto set =
        open_dataset({.data = config, .vocab_size = 50257, .seed = 1, .split = Split::train});
    Rate best;
    for (int i = 0; i < 3; ++i) {
      const Rate rate = rate_of(*set);
      best = rate.per_cpu_second > best.per_cpu_second ? rate : best;
    }
    fmt::print("{}: {:.0f} million tokens a second of CPU time, {:.0f} million a second\n",
               packing == Packing::concat ? "concat" : "greedy",
               best.per_cpu_second / 1e6,
               best.per_second / 1e6);
    CHECK(best.per_cpu_second >= 20e6);
  }
}

}  // namespace
}  // namespace colossal
