// Do estimates hold for any model, and do layouts need what their policies promise?
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

namespace colossal::test {
namespace {

/// The estimate of a text for these worlds, with every layout.
Estimate all_layouts(const std::string& text,
                     std::vector<std::int64_t> worlds,
                     const std::string& memory = "") {
  const TempDir folder;
  EstimateRequest request;
  request.config = (folder.path() / "run.yaml").string();
  std::ofstream(request.config) << text;
  if (!memory.empty()) {
    request.options.overrides.push_back({"run.device_memory=" + memory, "--gpu-memory"});
  }
  request.worlds = std::move(worlds);
  request.sweep_parallel = true;
  LoadOptions options = request.options;
  options.world_size = 1;
  const Loaded base = load(request.config, options);
  INFO(text << render(base.diagnostics));
  REQUIRE_FALSE(base.has_errors());
  return estimate(request, base.config);
}

/// Rows by "policy recompute micro".
std::map<std::string, EstimateRow> by_layout(const Estimate& estimate) {
  std::map<std::string, EstimateRow> rows;
  for (const EstimateRow& row : estimate.rows) {
    rows[fmt::format("{} {} {} {}", row.world, row.policy, row.recompute, row.micro_batch)] = row;
  }
  return rows;
}

/// A model, batch and precision drawn at random.
std::string random_layout(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  const char* precision = random() % 2 == 0 ? "fp32" : "bf16";
  return fmt::format(
      "run: {{device: cpu}}\n"
      "model: {{type: gpt, num_layers: {}, hidden_size: {}, num_heads: 2, vocab_size: {}, "
      "tie_embeddings: {}, dropout: {}}}\n"
      "data: {{type: synthetic, seq_length: {}}}\n"
      "train: {{steps: 5, global_batch_size: {}, precision: {}}}\n"
      "optimizer: {{type: {}, lr: 1e-3}}\n",
      one_of({2, 3, 5}),
      one_of({16, 48, 64}),
      one_of({100, 1000}),
      random() % 2 == 0,
      one_of({0, 0}) + 0.1 * one_of({0, 1}),
      one_of({8, 32}),
      one_of({4, 8, 12}),
      precision,
      random() % 3 == 0 ? "sgd" : "adamw");
}

std::int64_t kept(const RankBytes& bytes) {
  return bytes.weights + bytes.grads + bytes.optimizer;
}

}  // namespace

TEST_CASE("in any model a policy that cuts or moves more keeps less on the device", "[estimate]") {
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    const std::string text = random_layout(random);
    const auto rows = by_layout(all_layouts(text, {4}));
    INFO(text);
    for (const char* rest : {"none 1", "full 1"}) {
      const auto at = [&](const char* policy) {
        const auto row = rows.find(fmt::format("4 {} {}", policy, rest));
        INFO(policy << " " << rest);
        REQUIRE(row != rows.end());
        return row->second.bytes;
      };
      // parts of a chunk are rounded up
      const auto less = [](std::int64_t a, std::int64_t b) { return a <= b + b / 50 + 4096; };
      CHECK(less(kept(at("zero 1")), kept(at("zero 0"))));
      CHECK(less(kept(at("zero 2")), kept(at("zero 1"))));
      CHECK(less(kept(at("zero 3")), kept(at("zero 2"))));
      for (const char* stage : {"zero 0", "zero 1", "zero 2", "zero 3"}) {
        const RankBytes here = at(stage);
        const RankBytes moved = at(fmt::format("{}, optimizer on host", stage).c_str());
        CHECK(kept(moved) <= kept(here));
        CHECK(here.host.total() == 0);
        CHECK(moved.host.total() > 0);
      }
      CHECK(kept(at("zero 3, optimizer and weights on host")) <=
            kept(at("zero 3, optimizer on host")));
    }
  }
}

TEST_CASE("in any model recomputation and smaller micro-batches hold fewer activations",
          "[estimate]") {
  std::mt19937 random(12);
  for (int round = 0; round < 12; ++round) {
    const std::string text = random_layout(random);
    const Estimate found = all_layouts(text, {1, 2});
    const auto rows = by_layout(found);
    INFO(text);
    for (const auto& [layout, row] : rows) {
      if (row.recompute != "none") {
        continue;
      }
      INFO(layout);
      const std::string head = fmt::format("{} {} ", row.world, row.policy);
      const std::string tail = fmt::format(" {}", row.micro_batch);
      const std::int64_t all = row.bytes.activations + row.bytes.borrowed;
      const auto at = [&](const std::string& other) {
        const RankBytes& bytes = rows.at(other).bytes;
        return bytes.activations + bytes.borrowed;
      };
      CHECK(at(head + "full" + tail) <= all);
      CHECK(at(head + "selective" + tail) <= all);
      if (row.micro_batch > 1 && row.accumulation > 1) {  // else gradients have another dtype
        CHECK(rows.at(head + "none 1").bytes.total() < row.bytes.total());
      }
      CHECK(row.micro_batch * row.accumulation * row.world == found.global_batch);
    }
  }
}

TEST_CASE("what fits is what is not larger, in any model and for any size", "[estimate]") {
  std::mt19937 random(13);
  for (const char* size : {"200KiB", "1MiB", "1GiB"}) {
    const std::string text = random_layout(random);
    const Estimate found = all_layouts(text, {1, 2}, size);
    INFO(text << size);
    std::set<std::string> policies;
    for (const EstimateRow& row : found.rows) {
      REQUIRE(row.fits.has_value());
      CHECK(*row.fits == (row.bytes.total() <= found.capacity.device));
      policies.insert(row.policy);
    }
    CHECK(policies.contains("gemini auto"));
    CHECK(policies.size() == 12);
  }
}

TEST_CASE("classifiers, fp16 and states on disk have estimates too", "[estimate]") {
  const std::string mlp =
      "run: {device: cpu}\n"
      "model: {type: mlp, in_features: 4, layers: [64, 64], out_features: 3}\n"
      "data: {type: synthetic}\n"
      "train: {steps: 5, global_batch_size: 8}\n"
      "optimizer: {type: lars, lr: 0.1}\n";
  CHECK(by_layout(all_layouts(mlp, {2})).contains("2 zero 3 none 4"));
  const std::string gpt =
      "run: {device: cpu}\n"
      "model: {type: gpt, num_layers: 2, hidden_size: 32, num_heads: 2, vocab_size: 100}\n"
      "data: {type: synthetic, seq_length: 16}\n"
      "train: {steps: 5, global_batch_size: 8, precision: fp16}\n"
      "optimizer: {type: lamb, lr: 1e-3}\n";
  const auto half = by_layout(all_layouts(gpt, {2}));
  CHECK(half.at("2 zero 0 none 4").bytes.weights > 0);
  CHECK(half.at("2 zero 0 none 4").bytes.optimizer > 5 * half.at("2 zero 0 none 4").bytes.weights);
  const TempDir disk;
  const auto nvme = by_layout(all_layouts(
      gpt + fmt::format("parallel: {{gemini: {{placement: cpu, nvme: {{path: {}}}}}}}\n",
                        disk.path().string()),
      {2}));
  CHECK(nvme.at("2 gemini cpu none 4").bytes.nvme > 0);
  CHECK(nvme.at("2 zero 3 none 4").bytes.nvme == 0);
}

TEST_CASE("the batch of an estimate is that of the file, whatever gives it", "[estimate]") {
  const std::string head =
      "run: {device: cpu}\n"
      "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2, vocab_size: 100}\n"
      "data: {type: synthetic, seq_length: 8}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n";
  for (const char* train : {"train: {steps: 5, global_batch_size: 12}\n",
                            "train: {steps: 5, micro_batch_size: 12}\n",
                            "train: {steps: 5, micro_batch_size: 3, gradient_accumulation: 4}\n",
                            "train: {steps: 5, global_batch_size: 12, micro_batch_size: 6, "
                            "gradient_accumulation: 2}\n"}) {
    const Estimate found = all_layouts(head + train, {1, 2, 3});
    INFO(train);
    CHECK(found.global_batch == 12);
    CHECK(found.impossible.empty());
    const auto rows = by_layout(found);
    CHECK(rows.contains("1 zero 0 none 12"));
    CHECK(rows.contains("2 zero 0 none 6"));
    CHECK(rows.contains("2 zero 0 none 3"));
    CHECK(rows.contains("3 zero 0 none 4"));
    CHECK(rows.contains("3 zero 0 none 1"));
  }
}

}  // namespace colossal::test
