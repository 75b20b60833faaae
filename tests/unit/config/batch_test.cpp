// Do global batch, micro-batch, accumulation and replicas agree (config-and-cli 5.2)?
#include "config/batch_sizes.hpp"
#include "config_sandbox.hpp"
#include "core/hash.hpp"
#include "support/catch.hpp"

#include <array>
#include <sstream>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

/// One row: what is given (0: not) and what must come out (0: unknown).
struct BatchRow {
  std::int64_t world, global, micro, accumulation;
  std::int64_t want_global, want_micro, want_accumulation;
};

Loaded load_batch(const ConfigSandbox& box, const BatchRow& row) {
  std::vector<std::string> sets = {"train.micro_batch_size=null"};
  const auto give = [&](const char* key, std::int64_t value) {
    if (value != 0) {
      sets.push_back(std::string("train.") + key + "=" + std::to_string(value));
    }
  };
  give("global_batch_size", row.global);
  give("gradient_accumulation", row.accumulation);
  if (row.micro != 0) {
    sets[0] = "train.micro_batch_size=" + std::to_string(row.micro);
  }
  return box.load(kSynthetic, options(sets, row.world));
}

/// The only completion of the given numbers by search; zeros if there is none.
std::array<std::int64_t, 3> complete(std::int64_t data,
                                     std::int64_t global,
                                     std::int64_t micro,
                                     std::int64_t accumulation) {
  const bool one_known = (global == 0) != (micro == 0) && accumulation == 0;
  const std::int64_t most = 64;
  for (std::int64_t m = 1; m <= most; ++m) {
    for (std::int64_t a = 1; a <= (one_known ? 1 : most); ++a) {
      const std::int64_t g = data * m * a;
      if ((micro == 0 || m == micro) && (accumulation == 0 || a == accumulation) &&
          (global == 0 || g == global)) {
        return {g, m, a};
      }
    }
  }
  return {0, 0, 0};
}

/// Megatron-LM's rule, step by step: the batch rises by `increment` after every
/// samples / ((full - start) / increment) samples.
std::int64_t megatron(const BatchRampConfig& ramp, std::int64_t full, std::int64_t consumed) {
  if (consumed >= ramp.samples) {
    return full;
  }
  const std::int64_t rises = (full - ramp.start) / ramp.increment;
  std::int64_t risen = 0;
  while ((risen + 1) * ramp.samples <= consumed * rises) {
    ++risen;
  }
  return ramp.start + risen * ramp.increment;
}

/// Samples consumed before each step of a run of at least `samples`, and after the last.
std::vector<std::int64_t> positions(const BatchRampConfig& ramp,
                                    std::int64_t full,
                                    std::int64_t samples) {
  std::vector<std::int64_t> at = {0};
  while (at.back() < samples) {
    at.push_back(at.back() + megatron(ramp, full, at.back()));
  }
  return at;
}

}  // namespace

TEST_CASE("any two numbers give the third", "[config]") {
  const ConfigSandbox box;
  const BatchRow rows[] = {
      {2, 16, 4, 0, 16, 4, 2},
      {2, 16, 0, 2, 16, 4, 2},
      {2, 0, 4, 2, 16, 4, 2},
      {2, 16, 4, 2, 16, 4, 2},
      {2, 16, 0, 0, 16, 8, 1},
      {2, 0, 4, 0, 8, 4, 1},
      {0, 16, 4, 0, 16, 4, 0},
      {0, 16, 0, 2, 16, 0, 2},
      {0, 0, 4, 2, 0, 4, 2},
      {0, 16, 4, 2, 16, 4, 2},
      {0, 16, 0, 0, 16, 0, 1},
      {0, 0, 4, 0, 0, 4, 1},
      {1, 1, 0, 0, 1, 1, 1},
  };
  for (const BatchRow& row : rows) {
    INFO(row.world << " " << row.global << " " << row.micro << " " << row.accumulation);
    const Loaded loaded = load_batch(box, row);
    REQUIRE(summary(loaded).empty());
    CHECK(loaded.config.train.global_batch_size == row.want_global);
    CHECK(loaded.config.train.micro_batch_size == row.want_micro);
    CHECK(loaded.config.train.gradient_accumulation == row.want_accumulation);
  }
}

TEST_CASE("a quotient that is no whole number is an error, never rounded", "[config]") {
  const ConfigSandbox box;
  const BatchRow rows[] = {{3, 16, 0, 0, 0, 0, 0},
                           {2, 16, 5, 0, 0, 0, 0},
                           {2, 16, 0, 3, 0, 0, 0},
                           {2, 16, 4, 3, 0, 0, 0},
                           {1, 4, 8, 0, 0, 0, 0},
                           {0, 16, 5, 0, 0, 0, 0},
                           {0, 16, 4, 3, 0, 0, 0},
                           {0, 4, 8, 0, 0, 0, 0},
                           {8, 4, 0, 0, 0, 0, 0}};
  for (const BatchRow& row : rows) {
    INFO(row.world << " " << row.global << " " << row.micro << " " << row.accumulation);
    const Loaded loaded = load_batch(box, row);
    REQUIRE(loaded.diagnostics.size() == 1);
    CHECK(loaded.diagnostics[0].id == "batch-mismatch");
    CHECK_FALSE(loaded.diagnostics[0].fix.empty());
  }
}

TEST_CASE("a world seen as 1 is explained with three ways out (DeepSpeed 6914)", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = load_batch(box, {1, 8, 2, 1, 0, 0, 0});
  REQUIRE(loaded.diagnostics.size() == 1);
  const Diagnostic& error = loaded.diagnostics[0];
  CHECK(error.message ==
        "global_batch_size 8 is not data 1 x micro_batch_size 2 x gradient_accumulation 1");
  CHECK(error.why.find("world size 1: no launcher environment found") != std::string::npos);
  CHECK(error.fix ==
        "gradient_accumulation: 4 | micro_batch_size: 8 | global_batch_size: 2 | 4 processes: "
        "--nproc 4 or torchrun");
}

TEST_CASE("the mismatch names every origin (Lightning 19891)", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = load_batch(box, {1, 8, 4, 4, 0, 0, 0});
  REQUIRE(loaded.diagnostics.size() == 1);
  const auto& related = loaded.diagnostics[0].related;
  REQUIRE(related.size() == 3);
  CHECK(related[0].path == "train.micro_batch_size");
  CHECK(related[1].path == "train.gradient_accumulation");
  CHECK(related[1].origin.file == "--set");
  CHECK(related[2].origin.file == "derived(world size)");
}

TEST_CASE("a micro-batch larger than the batch is said in plain words (levanter 1261)",
          "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = load_batch(box, {1, 4, 8, 0, 0, 0, 0});
  REQUIRE(loaded.diagnostics.size() == 1);
  CHECK(loaded.diagnostics[0].message ==
        "micro_batch_size 8 on 1 replica is more than global_batch_size 4");
}

TEST_CASE("only a micro-batch is a legal file (axolotl 3836)", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = load_batch(box, {3, 0, 4, 0, 0, 0, 0});
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.train.gradient_accumulation == 1);
  CHECK(loaded.config.train.global_batch_size == 12);
}

TEST_CASE("a given replica count stands in for an unknown world", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded =
      box.load(kSynthetic, options({"parallel.data=4", "train.global_batch_size=32"}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.train.gradient_accumulation == 2);
}

namespace {

/// What a fix offers: "micro_batch_size: 4 or 8 | 2 processes: --nproc 2 or torchrun" gives
/// {micro_batch_size, 4}, {micro_batch_size, 8} and {processes, 2}.
std::vector<std::pair<std::string, std::int64_t>> offers_of(const std::string& fix) {
  std::vector<std::pair<std::string, std::int64_t>> offers;
  std::istringstream words(fix);
  std::string name;
  for (std::string word; words >> word;) {
    const bool number = word.find_first_not_of("0123456789") == std::string::npos;
    if (word == "processes:" || word == "process:") {
      offers.back().first = "processes";
      words.ignore(1000, '|');  // how to start them
    } else if (number) {
      offers.emplace_back(name, std::stoll(word));
    } else if (word.ends_with(':')) {
      name = word.substr(0, word.size() - 1);
    }
  }
  return offers;
}

/// The row with one number changed as a fix says.
BatchRow changed(BatchRow row, const std::pair<std::string, std::int64_t>& offer) {
  if (offer.first == "processes") {
    row.world = offer.second;
  } else if (offer.first == "global_batch_size") {
    row.global = offer.second;
  } else if (offer.first == "micro_batch_size") {
    row.micro = offer.second;
  } else if (offer.first == "gradient_accumulation") {
    row.accumulation = offer.second;
  } else {
    FAIL("unknown offer " << offer.first);
  }
  return row;
}

}  // namespace

TEST_CASE("a mismatch offers the nearest values that fit, from below and above", "[config]") {
  const ConfigSandbox box;
  const auto fix = [&](const BatchRow& row) {
    const Loaded loaded = load_batch(box, row);
    REQUIRE(summary(loaded) == "batch-mismatch 2 0");
    return loaded.diagnostics[0].fix;
  };
  CHECK(fix({2, 16, 5, 0, 0, 0, 0}) == "micro_batch_size: 4 or 8 | global_batch_size: 10 or 20");
  CHECK(fix({0, 9, 2, 0, 0, 0, 0}) == "micro_batch_size: 1 or 3 | global_batch_size: 8 or 10");
  CHECK(fix({3, 16, 0, 0, 0, 0, 0}) ==
        "global_batch_size: 15 or 18 | 2 processes: --nproc 2 or torchrun | 4 processes: --nproc 4 "
        "or torchrun");
  CHECK(fix({2, 16, 0, 3, 0, 0, 0}) ==
        "gradient_accumulation: 2 or 4 | global_batch_size: 12 or 18");
  CHECK(fix({1, 7, 9, 0, 0, 0, 0}) == "micro_batch_size: 7 | global_batch_size: 9");
  CHECK(fix({1, 1000003, 2, 0, 0, 0, 0}) ==  // a prime number
        "micro_batch_size: 1 or 1000003 | global_batch_size: 1000002 or 1000004");
}

TEST_CASE("whatever a mismatch offers is accepted, and something always is offered", "[config]") {
  const ConfigSandbox box;
  int num_offers = 0;
  for (std::int64_t world = 0; world <= 4; ++world) {
    for (const std::int64_t global : {1, 4, 7, 12, 30}) {
      for (std::int64_t micro = 0; micro <= 5; ++micro) {
        for (const std::int64_t accumulation : {0, 1, 3, 8}) {
          const BatchRow row{world, global, micro, accumulation, 0, 0, 0};
          const Loaded loaded = load_batch(box, row);
          if (!loaded.has_errors()) {
            continue;
          }
          const std::string& fix = loaded.diagnostics.at(0).fix;
          INFO(world << " " << global << " " << micro << " " << accumulation << ": " << fix);
          const auto offers = offers_of(fix);
          CHECK_FALSE(offers.empty());
          for (const auto& offer : offers) {
            INFO(offer.first << " " << offer.second);
            CHECK(summary(load_batch(box, changed(row, offer))).empty());
            ++num_offers;
          }
        }
      }
    }
  }
  CHECK(num_offers > 500);
}

TEST_CASE("batch arithmetic agrees with brute force on a grid", "[config]") {
  const ConfigSandbox box;
  for (std::int64_t world = 1; world <= 3; ++world) {
    for (std::int64_t global = 0; global <= 7; ++global) {
      for (std::int64_t micro = 0; micro <= 3; ++micro) {
        for (std::int64_t accumulation = 0; accumulation <= 3; ++accumulation) {
          const Loaded loaded = load_batch(box, {world, global, micro, accumulation, 0, 0, 0});
          INFO(world << " " << global << " " << micro << " " << accumulation);
          const bool missing = global == 0 && micro == 0;
          const auto [g, m, a] = complete(world, global, micro, accumulation);
          REQUIRE(loaded.has_errors() == (missing || g == 0));
          if (!loaded.has_errors()) {
            CHECK(loaded.config.train.global_batch_size == g);
            CHECK(loaded.config.train.micro_batch_size == m);
            CHECK(loaded.config.train.gradient_accumulation == a);
          }
        }
      }
    }
  }
}

TEST_CASE("a ramp counts as many steps and samples as a loop over its steps", "[config]") {
  std::uint64_t random = 1;
  const auto below = [&](std::int64_t limit) {
    random = splitmix64(random);
    return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(limit));
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int64_t unit = 1 + below(5);
    BatchRampConfig ramp;
    ramp.start = unit * (1 + below(6));
    ramp.increment = unit * (1 + below(4));
    ramp.samples = 1 + below(400);
    const std::int64_t full = ramp.start + ramp.increment * (1 + below(7));
    const std::int64_t budget = 1 + below(600);
    INFO(ramp.start << " to " << full << " by " << ramp.increment << " over " << ramp.samples
                    << ", budget " << budget);
    const BatchSizes sizes(full, ramp);
    const std::vector<std::int64_t> at = positions(ramp, full, budget);
    REQUIRE(sizes.steps_to(budget) == std::ssize(at) - 1);
    for (std::int64_t step = 0; step < std::ssize(at); ++step) {
      const std::int64_t consumed = at[static_cast<std::size_t>(step)];
      REQUIRE(sizes.at(consumed) == megatron(ramp, full, consumed));
      REQUIRE(sizes.samples_after(step) == consumed);
      REQUIRE(sizes.steps_to(consumed) == step);
    }
    REQUIRE(sizes.at(ramp.samples) == full);
    REQUIRE(sizes.ramp_steps() == std::ssize(positions(ramp, full, ramp.samples)) - 1);
  }
}

TEST_CASE("without a ramp all steps are equal", "[config]") {
  const BatchSizes sizes(8);
  CHECK(sizes.at(0) == 8);
  CHECK(sizes.at(1'000'000) == 8);
  CHECK(sizes.steps_to(17) == 3);
  CHECK(sizes.steps_to(0) == 0);
  CHECK(sizes.samples_after(3) == 24);
  CHECK(sizes.ramp_steps() == 0);
  // one that leads nowhere is reported by a rule, and must not be followed
  const BatchSizes wrong(8, BatchRampConfig{.start = 9, .increment = 2, .samples = 10});
  CHECK(wrong.at(0) == 8);
}

TEST_CASE("the longest ramp is counted at once", "[config]") {
  const BatchSizes sizes(1'000'000'000,
                         BatchRampConfig{.start = 1, .increment = 1, .samples = 1'000'000'000});
  const std::int64_t steps = sizes.steps_to(1'000'000'000);
  CHECK(sizes.samples_after(steps) >= 1'000'000'000);
  CHECK(sizes.samples_after(steps - 1) < 1'000'000'000);
}

TEST_CASE("budgets count the steps of a ramp", "[config]") {
  Config config;
  config.data.seq_length = 10;
  config.train.global_batch_size = 8;
  config.train.batch_ramp = BatchRampConfig{.start = 2, .increment = 2, .samples = 12};
  // parts of 4 samples: 2 2 4 6, then 8
  config.train.samples = 14;
  CHECK(total_steps(config, 0) == 4);
  config.train.samples = 15;
  CHECK(total_steps(config, 0) == 5);
  config.train.samples.reset();
  config.train.tokens = 140;
  CHECK(total_steps(config, 0) == 4);
  config.train.tokens = 141;
  CHECK(total_steps(config, 0) == 5);
  config.train.tokens.reset();
  config.train.epochs = 2;
  CHECK(total_steps(config, 7) == 4);
  CHECK(total_steps(config, 8) == 5);
}

}  // namespace colossal::test
