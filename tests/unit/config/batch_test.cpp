// Do global batch, micro-batch, accumulation and replicas agree (config-and-cli 5.2)?
#include "config_sandbox.hpp"
#include "support/catch.hpp"

using namespace colossal;
using namespace colossal::test;

namespace {

/// One row: what is given (0: not) and what must come out (0: unknown).
struct Row {
  std::int64_t world, global, micro, accumulation;
  std::int64_t want_global, want_micro, want_accumulation;
};

Loaded load_batch(const ConfigSandbox& box, const Row& row) {
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

}  // namespace

TEST_CASE("any two numbers give the third", "[config]") {
  const ConfigSandbox box;
  const Row rows[] = {
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
  for (const Row& row : rows) {
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
  const Row rows[] = {{3, 16, 0, 0, 0, 0, 0},
                      {2, 16, 5, 0, 0, 0, 0},
                      {2, 16, 0, 3, 0, 0, 0},
                      {2, 16, 4, 3, 0, 0, 0},
                      {1, 4, 8, 0, 0, 0, 0},
                      {0, 16, 5, 0, 0, 0, 0},
                      {0, 16, 4, 3, 0, 0, 0},
                      {0, 4, 8, 0, 0, 0, 0},
                      {8, 4, 0, 0, 0, 0, 0}};
  for (const Row& row : rows) {
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
