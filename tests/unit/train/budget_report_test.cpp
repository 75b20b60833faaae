// Is a budget that is too small told in time, by how much, and with changes that make it fit?
#include "config/config.hpp"
#include "memory/accounting.hpp"
#include "memory/device_memory.hpp"
#include "memory_report_helpers.hpp"
#include "train/cheaper_runs.hpp"
#include "train/memory_report.hpp"

#include <fmt/format.h>

#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

using Catch::Matchers::Contains;

/// Placement const whose budget lacks `missing` bytes.
Config with_budget(std::int64_t missing) {
  Config config = with_micro_batch(8, 1);
  GeminiConfig& gemini = config.parallel.gemini.emplace();
  gemini.placement = Placement::constant;
  gemini.chunk_size = 64 << 10;
  const std::int64_t slack = make_plan(config, 0).ranks.front().slack.value();
  gemini.const_budget -= slack + missing;
  return config;
}

TEST_CASE("a budget that is too small is told with the changes that make it fit",
          "[memory_report]") {
  CHECK_FALSE(overrun(make_plan(with_budget(0), 0), {}).has_value());
  const Config config = with_budget(1000);
  const auto over = overrun(make_plan(config, 0), {});
  REQUIRE(over.has_value());
  CHECK(over->share == MemoryShare::budget);
  CHECK(over->missing == 1000);
  const std::int64_t budget = config.parallel.gemini->const_budget;
  const std::string larger =
      fmt::format("parallel.gemini.const_budget {} -> {}", budget, budget + 1000);
  const std::vector<CheaperRun> runs = cheaper_runs(config, 0, 1000, MemoryShare::budget);
  REQUIRE(runs.size() == 3);
  CHECK(runs.front().change == larger);
  for (const CheaperRun& run : runs) {
    INFO(run.change);
    CHECK(run.saved >= 1000);
  }
  const Error cause(ErrorKind::memory,
                    "budget-too-small",
                    "block 'x' lacks 1000 bytes\n  fix   by hand",
                    std::source_location::current());
  const auto report = memory_report(cause, config, {.rank = 0, .step = 0});
  REQUIRE(report.has_value());
  CHECK(report->id() == "budget-too-small");
  CHECK(report->exit_code() == 6);
  CHECK_THAT(report->what(),
             Catch::Matchers::StartsWith("block 'x' lacks 1000 bytes\n  estimate  weights ") &&
                 Contains("\n  fix       " + larger + ": 1000 B less\n") && !Contains("by hand") &&
                 !Contains("not enough alone"));
}

/// Placement auto on a device of this size.
Config with_auto(std::int64_t device) {
  Config config = with_micro_batch(8, 1);
  GeminiConfig& gemini = config.parallel.gemini.emplace();
  gemini.placement = Placement::automatic;
  gemini.chunk_size = 64 << 10;
  config.run.device_memory = device;
  return config;
}

TEST_CASE("what auto may use of a device is offered first, as far as it suffices",
          "[memory_report]") {
  const auto slack_on = [](std::int64_t device) {
    return make_plan(with_auto(device), 0).ranks.front().slack.value();
  };
  // The size at which nothing is left, from the shares 0.9 and 0.05.
  const std::int64_t large = 8 * kMiB;
  const auto least =
      large - static_cast<std::int64_t>(static_cast<double>(slack_on(large)) / 0.855);
  const auto percent = [&](std::int64_t part) { return least - least * part / 100; };
  const auto first_on = [&](std::int64_t device) {
    const std::int64_t missing = -slack_on(device);
    REQUIRE(missing > 0);
    const CheaperRun best =
        cheaper_runs(with_auto(device), 0, missing, MemoryShare::budget).front();
    CHECK(best.saved >= missing);
    return best.change;
  };
  CHECK(first_on(percent(3)) == "parallel.gemini.reserve 0.05 -> 0");
  CHECK(first_on(percent(8)) == "parallel.gemini.steady_cuda_cap_ratio 0.9 -> 1");
  CHECK(first_on(percent(14)).starts_with("train.micro_batch_size 8 -> "));
  // Beyond what the plan knows the run's own number counts.
  const Config config = with_auto(percent(3));
  const std::vector<CheaperRun> runs = cheaper_runs(config, 0, least / 12, MemoryShare::budget);
  CHECK(runs.front().change == "parallel.gemini.steady_cuda_cap_ratio 0.9 -> 1");
  CHECK(refusal_of(config).find("less than its neediest block needs") != std::string::npos);
}

/// What refuse_certain_lack() throws; empty if nothing.
std::string lack_of(const Config& config) {
  try {
    refuse_certain_lack(config, 0);
  } catch (const Error& error) {
    CHECK(error.id() == "budget-too-small");
    CHECK(error.exit_code() == 6);
    return error.what();
  }
  return "";
}

/// The largest device, as far as some bytes matter, of which placement auto's plan lacks this
/// share.
std::int64_t device_lacking(Config config, double share) {
  std::int64_t fits = 64 * kMiB;
  std::int64_t lacks = 0;
  while (fits - lacks > 64) {
    const std::int64_t middle = (fits + lacks) / 2;
    config.run.device_memory = middle;
    const std::int64_t slack = make_plan(config, 0).ranks.front().slack.value();
    (static_cast<double>(-slack) > share * static_cast<double>(middle) ? lacks : fits) = middle;
  }
  return lacks;
}

TEST_CASE("a run of placement auto that surely lacks is refused before its first step",
          "[memory_report]") {
  const std::int64_t lacking = device_lacking(with_auto(0), kPlanError);
  const std::string text = lack_of(with_auto(lacking));
  const std::int64_t missing = -make_plan(with_auto(lacking), 0).ranks.front().slack.value();
  CHECK_THAT(text,
             Contains(fmt::format(
                 "of the device's {} bytes may be used: {} bytes are missing", lacking, missing)));
  // One that lacks less than a plan may be off by is only warned: the first step will tell.
  const Config close = with_auto(lacking + 64);
  CHECK(lack_of(close).empty());
  CHECK_THAT(refusal_of(close), Contains("less than its neediest block needs"));
  CHECK(lack_of(with_auto(64 * kMiB)).empty());
}

TEST_CASE("the size of a device need not be said to be too little", "[memory_report]") {
  Config config = with_auto(device_lacking(with_auto(0), 0.1));
  const std::int64_t there = *config.run.device_memory;
  config.run.device_memory.reset();
  CHECK(lack_of(config).empty());    // no size is known
  device_memory().set_limit(there);  // as a GPU has one
  const std::string text = lack_of(config);
  const Error cause(ErrorKind::memory, "budget-too-small", text, std::source_location::current());
  const auto report = memory_report(cause, config, {.rank = 0, .step = 0});
  device_memory().set_limit(std::nullopt);
  CHECK_THAT(text, Contains(" bytes are missing"));
  REQUIRE(report.has_value());
  CHECK_THAT(report->what(), Contains("\n  fix       ") && Contains(" less"));
}

TEST_CASE("a plan without a budget to measure is never surely too large", "[memory_report]") {
  CHECK(lack_of(with_missing(kMiB)).empty());
  CHECK(lack_of(with_budget(1000)).empty());
}

TEST_CASE("of a ramp the first step alone decides before it", "[memory_report]") {
  Config config = with_auto(0);
  config.model.num_layers = 1;
  config.model.tie_embeddings = false;
  config.model.vocab_size = 1000;
  config.parallel.gemini->chunk_size = 1 << 14;
  config.train.micro_batch_size = 1;
  config.train.gradient_accumulation = config.train.global_batch_size = 8;
  const std::int64_t whole = device_lacking(config, kPlanError);
  Config one = config;
  one.train.gradient_accumulation = one.train.global_batch_size = 1;
  const std::int64_t first = device_lacking(one, kPlanError);
  REQUIRE(first < whole - 1000);  // later micro-batches begin beside gradients of the one before
  config.run.device_memory = whole;
  CHECK_FALSE(lack_of(config).empty());
  config.train.batch_ramp = {.start = 1, .increment = 1, .samples = 100};
  CHECK(lack_of(config).empty());
  config.run.device_memory = first;
  CHECK_FALSE(lack_of(config).empty());
}

}  // namespace
}  // namespace colossal::test
