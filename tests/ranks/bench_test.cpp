// Do ranks that measure together repeat the same calls, and count what really moves?
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "train/bench/parts.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

/// The same on every rank, or the test fails on all of them.
void require_agreement(const Comm& comm, const std::string& mine) {
  const std::vector<std::string> all = comm.gather_text(mine);
  for (const std::string& other : all) {
    CHECK(other == all.front());
  }
}

std::string repetitions(const Timing& time) {
  return fmt::format("{} x {}", time.samples, time.calls);
}

/// Rows of the collectives between the ranks of a test.
std::vector<BenchRow> measured_collectives(const RankContext& ctx) {
  const Config config = step_config(tiny_gpt(), 1);
  const ParallelContext context(config);
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(at::kCPU);
  return bench_collectives({.config = config,
                            .context = context,
                            .comm = ctx.comm(),
                            .timer = *timer,
                            .sampling = {.sample_seconds = 1e-4, .total_seconds = 1e-3}});
}

/// Calls of each operation so far.
std::map<std::string, std::int64_t> calls_of(const Comm& comm) {
  std::map<std::string, std::int64_t> calls;
  for (const CommCounter& counter : comm.counters()) {
    calls[counter.label] = counter.calls;
  }
  return calls;
}

}  // namespace

RANKS_TEST_CASE("three ranks measure every collective equally often", "[bench]", 3) {
  const std::vector<BenchRow> rows = measured_collectives(ctx);
  REQUIRE(rows.size() == 16);
  std::string all;
  for (const BenchRow& row : rows) {
    INFO(row.name << " of " << row.size);
    CHECK(row.part == "collectives");
    CHECK(row.unit == BenchUnit::bytes);
    CHECK(row.rate() > 0);
    CHECK(row.time.samples >= 3);
    all += row.name + " " + row.size + ": " + repetitions(row.time) + "\n";
  }
  require_agreement(ctx.comm(), all);
}

RANKS_TEST_CASE("the rate of a collective is that of a ring's busiest link", "[bench]", 2) {
  for (const BenchRow& row : measured_collectives(ctx)) {
    INFO(row.name << " of " << row.size);
    if (row.size != "4.0 KiB") {
      continue;
    }
    // Of two ranks: a sum goes there and back in halves, a gather or scatter once.
    const double bytes = row.name == "all-reduce" || row.name == "broadcast" ? 4096 : 2048;
    CHECK(row.amount == bytes);
  }
}

RANKS_TEST_CASE("a message is cut to what all ranks hold equal parts of", "[bench]", 3) {
  for (const BenchRow& row : measured_collectives(ctx)) {
    if (row.name == "broadcast") {
      const auto bytes = static_cast<std::int64_t>(row.amount);
      CHECK(bytes % (3 * 4) == 0);
      CHECK(bytes > 0);
    }
  }
}

RANKS_TEST_CASE("measuring collectives calls them as often as it says", "[bench]", 2) {
  const auto before = calls_of(ctx.comm());
  std::map<std::string, std::int64_t> expected;
  for (const BenchRow& row : measured_collectives(ctx)) {
    expected[row.name] += 2 + std::int64_t{row.time.samples} * row.time.calls;
  }
  auto after = calls_of(ctx.comm());
  const auto made = [&](const char* label) {
    const auto it = before.find(label);
    return after[label] - (it == before.end() ? 0 : it->second);
  };
  CHECK(made("all_gather") == expected["all-gather"]);
  CHECK(made("reduce_scatter") == expected["reduce-scatter"]);
  CHECK(made("broadcast") == expected["broadcast"]);
  CHECK(made("all_reduce") == expected["all-reduce"] + 16);  // and the agreement on each row
}

RANKS_TEST_CASE("a slow rank slows the number of calls down for all", "[bench]", 2) {
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(at::kCPU);
  Sampling sampling{.sample_seconds = 0.01, .total_seconds = 0.05};
  sampling.agree = [&](double seconds) {
    at::Tensor most = at::empty({1}, at::kDouble);
    *most.mutable_data_ptr<double>() = seconds;
    ctx.comm().all_reduce(most, ReduceOp::max).wait();
    return *most.const_data_ptr<double>();
  };
  const auto call = [&] {
    if (ctx.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  const Timing time = measure(*timer, call, sampling);
  CHECK(time.calls == 1);  // rank 0 alone would have called thousands of times
  CHECK(time.samples == 3);
  require_agreement(ctx.comm(), repetitions(time));
}

RANKS_TEST_CASE("steps of two ranks count the tokens of both", "[bench]", 2) {
  Config config = tiny_gpt();
  config.parallel.data = 2;
  config.train.micro_batch_size = 8;
  config = step_config(config, 3);
  const ParallelContext context(config, ctx.world());
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(at::kCPU);
  const std::vector<BenchRow> rows =
      bench_step({.config = config, .context = context, .comm = ctx.comm(), .timer = *timer});
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].amount == 16 * 12);
  CHECK(rows[0].time.samples == 3);
  CHECK(rows[0].size == "16 x 12");
}
