// How do the values of a sweep look on one line and in one form, and what does its schema say?
#include "config/sweep.hpp"
#include "config/sweep/values.hpp"
#include "config_sandbox.hpp"
#include "schema_check.hpp"
#include "support/catch.hpp"

#include <fstream>
#include <iterator>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

/// A text as one value of a tree.
detail::Node value_of(const std::string& text) {
  detail::Report report;
  auto node = detail::parse_yaml(text, {}, false, report);
  REQUIRE(node.has_value());
  return *node;
}

}  // namespace

TEST_CASE("a value on one line reads back as it was", "[sweep]") {
  for (const char* text : {"1",
                           "-3",
                           "1e-5",
                           "5k",
                           "true",
                           "'true'",
                           "\"1e-5\"",
                           "~",
                           "null",
                           "''",
                           "a word",
                           "'it''s'",
                           "\"tab\\tand \\\"quotes\\\" and \\\\\"",
                           "[a, 'b, c', \"{d}\"]",
                           "{a: [1, {b: 'x: y'}], 'c d': null}",
                           "['*.bias', \"*norm*\"]",
                           "\"${vars.x}\"",
                           "'#no comment'",
                           "Z\xC3\xB3\xC5\x82\xC4\x87",
                           "64MiB",
                           "[]",
                           "{}",
                           "- [1, 2]\n- {k: v}\n",
                           "|\n  two\n  lines\n"}) {
    const detail::Node node = value_of(text);
    const std::string flow = detail::flow_yaml(node);
    INFO(text << " -> " << flow);
    CHECK(flow.find('\n') == std::string::npos);
    CHECK(to_json(value_of(flow)) == to_json(node));
  }
}

TEST_CASE("numbers have one form, texts in quotes are no numbers", "[sweep]") {
  const auto same = [](const char* a, const char* b) {
    return detail::plain_json(value_of(a)) == detail::plain_json(value_of(b));
  };
  CHECK(same("5k", "5_000"));
  CHECK(same("5e3", "5000.0"));
  CHECK(same("3e-4", "0.00030"));
  CHECK(same("True", "true"));
  CHECK(same("[1e3, 2]", "[1000, 2.0]"));
  CHECK(same("{a: 1, b: 2}", "{b: 2, a: 1}"));
  CHECK_FALSE(same("'5000'", "5000"));
  CHECK_FALSE(same("null", "'null'"));
  CHECK_FALSE(same("[1, 2]", "[2, 1]"));
  CHECK_FALSE(same("1", "true"));
}

TEST_CASE("the schema of sweeps accepts what the loader does", "[sweep]") {
  SchemaCheck schema(sweep_schema());
  const std::string base = "base: a.yaml\n";
  for (const char* good :
       {"parameters: {optimizer.lr: [1e-3, 2e-3], train.steps: [5k]}",
        "method: grid\nzip: [{train.steps: [1, 2], run.seed: [1, 2]}]\nexclude: [{run.seed: 1}]",
        "method: list\ntrials: [{}, {optimizer.lr: 0.1, parallel.gemini: null}]",
        "method: random\nsamples: 1k\nseed: 0\nparameters: {optimizer.lr: {uniform: [1, 2]}, "
        "optimizer.type: {choice: [adamw]}, train.tokens: {log_uniform: [1M, 1B]}}",
        "parameters: {vars.x: [1, a], 'data.train[0].weight': [1, 2]}\nrun: {nproc: auto}",
        "parameters: {train.activation_checkpoint: [full, {mode: full}]}\nrun: {nproc: 4, "
        "output_dir: x}",
        "version: 1\nname: s\nparameters: {data.train: [[a.txt], [{path: b.txt}]]}"}) {
    INFO(good);
    CHECK(schema.accepts(base + good + "\n"));
  }
  CHECK(schema.accepts("extends: common.yaml\n"));
  for (const char* bad : {"paramters: {run.seed: [1]}",
                          "parameters: {run.seed: 1}",
                          "parameters: {run.seed: []}",
                          "parameters: {run.seed: [x]}",
                          "parameters: {run.sede: [1]}",
                          "parameters: {run.name: [a]}",
                          "parameters: {run: [{seed: 1}]}",
                          "parameters: [run.seed]",
                          "parameters: {optimizer.lr: {uniform: [1, 2]}}",
                          "parameters: {optimizer.lr: ['0.1']}",
                          "method: list",
                          "method: list\ntrials: [{run.seed: [1]}]",
                          "method: list\ntrials: [{}]\nparameters: {run.seed: [1]}",
                          "method: random\nparameters: {run.seed: {uniform: [1, 2]}}",
                          "method: random\nsamples: 2\nparameters: {run.seed: [1]}",
                          "method: random\nsamples: 2\nparameters: {run.seed: {uniform: [1]}}",
                          "method: random\nsamples: 2\nparameters: {run.seed: {normal: [1, 2]}}",
                          "method: grids",
                          "samples: 2\nparameters: {run.seed: [1]}",
                          "zip: {run.seed: [1]}",
                          "run: {nproc: 0}",
                          "run: {nprocs: 2}"}) {
    INFO(bad);
    CHECK_FALSE(schema.accepts(base + bad + "\n"));
  }
  CHECK_FALSE(schema.accepts("parameters: {run.seed: [1]}\n"));
}

TEST_CASE(
    "the schema file of sweeps is fresh, and the shipped sweeps are valid by it and by the "
    "loader",
    "[sweep]") {
  const fs::path source = COLOSSAL_SOURCE_DIR;
  const auto read = [](const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  INFO("run: build/cpu/colossal-train sweep schema > schemas/sweep.schema.json");
  CHECK(read(source / "schemas" / "sweep.schema.json") == sweep_schema());
  SchemaCheck schema(sweep_schema());
  int found = 0;
  for (const auto& entry : fs::directory_iterator(source / "configs" / "sweeps")) {
    const Sweep sweep = load_sweep(entry.path());
    INFO(entry.path() << "\n" << render(sweep.diagnostics));
    CHECK(sweep.diagnostics.empty());
    CHECK(sweep.trials.size() > 1);
    CHECK(schema.accepts(read(entry.path())));
    CHECK(read(entry.path())
              .starts_with("# yaml-language-server: $schema=../../schemas/sweep.schema.json\n"));
    ++found;
  }
  CHECK(found >= 2);
}

}  // namespace colossal::test
