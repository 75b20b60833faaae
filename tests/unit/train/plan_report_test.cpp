// Does the plan tell what a run then does?
#include "train/plan_report.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"
#include "support/tiny_models.hpp"
#include "train/trainer.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {
namespace {

std::int64_t bytes(const at::Tensor& tensor) {
  return tensor.numel() * tensor.element_size();
}

}  // namespace

TEST_CASE("planned bytes are what a run allocates", "[plan]") {
  const TempDir folder;
  for (const Config& config : {tiny_gpt(), tiny_text_gpt(folder.path())}) {
    const ParallelContext context(config);
    const PlanReport plan = make_plan(config, 80);
    const TrainerParts parts = build(config, context, {});
    RankBytes real;
    std::int64_t largest = 0;
    for (const FlatShard& shard : parts.store->shards()) {
      real.weights += bytes(shard.master);
      real.grads += bytes(shard.grad);
      largest = std::max(largest, bytes(shard.master));
      for (const auto& [name, tensor] : shard.state) {
        real.optimizer += bytes(tensor);
      }
    }
    REQUIRE(plan.ranks.size() == 1);
    CHECK(plan.ranks[0].weights == real.weights);
    CHECK(plan.ranks[0].grads == real.grads);
    CHECK(plan.ranks[0].optimizer == real.optimizer);
    CHECK(plan.chunk_bytes == largest);
    CHECK(plan.num_chunks == static_cast<std::int64_t>(parts.store->shards().size()));
    CHECK(plan.total_steps == parts.total_steps);
  }
}

TEST_CASE("a plan for GPUs counts what the optimizer takes there, and lends gradients", "[plan]") {
  Config config = tiny_gpt();
  config.run.device_memory = std::int64_t{1} << 30U;
  const auto bytes_of = [&](DeviceKind device, OptimizerType optimizer) {
    config.run.device = device;
    config.optimizer.type = optimizer;
    return make_plan(config, 80).ranks.at(0);
  };
  // The embedding is the largest parameter, and its six fp64 arrays exceed the activations.
  config.model.vocab_size = 50'000;
  config.train.micro_batch_size = config.train.global_batch_size = 1;
  config.train.gradient_accumulation = 1;
  const RankBytes adam = bytes_of(DeviceKind::cuda, OptimizerType::adamw);
  const RankBytes factored = bytes_of(DeviceKind::cuda, OptimizerType::adafactor);
  CHECK(factored.borrowed == 6 * 8 * 50'000 * 16);
  CHECK(adam.borrowed == 0);
  CHECK(factored.activations == 0);
  const RankBytes on_cpu = bytes_of(DeviceKind::cpu, OptimizerType::adafactor);
  CHECK(on_cpu.borrowed == 0);
  CHECK(on_cpu.grads == on_cpu.weights);
  CHECK(factored.grads == factored.weights);  // by then backward has reached all
}

TEST_CASE("a plan for GPUs counts what libraries hold there whatever the size of the model",
          "[plan]") {
  Config config = tiny_gpt();
  config.run.device_memory = std::int64_t{1} << 30U;
  config.model.hidden_size = 32;  // whole packs of 16 bits, and heads that kernels take
  config.model.attention_dropout = 0;
  config.model.ffn_hidden_size = 128;
  config.model.num_heads = config.model.num_kv_heads = 2;
  const auto mib = [&](DeviceKind device) {
    config.run.device = DeviceKind::cpu;
    const std::int64_t on_cpu = make_plan(config, 80).ranks.at(0).buffers;
    config.run.device = device;
    constexpr std::int64_t kHalf = std::int64_t{1} << 19U;  // batches count, too, by some bytes
    return (make_plan(config, 80).ranks.at(0).buffers - on_cpu + kHalf) >> 20U;
  };
  config.train.precision = Precision::fp32;
  CHECK(mib(DeviceKind::cpu) == 0);
  CHECK(mib(DeviceKind::cuda) == 32 + 32 + 1);
  config.train.precision = Precision::bf16;
  CHECK(mib(DeviceKind::cuda) == 32);
  config.data.cross_document_attention = false;
  CHECK(mib(DeviceKind::cuda) == 32 + 64);
  config.data.cross_document_attention = true;
  config.model.attention = AttentionKind::math;
  CHECK(mib(DeviceKind::cuda) == 32 + 64);
}

TEST_CASE("a plan for GPUs knows that their heads make logits of some tokens at a time", "[plan]") {
  Config config = tiny_gpt();
  config.run.device_memory = std::int64_t{1} << 40U;
  config.model.vocab_size = 5000;
  config.train.micro_batch_size = config.train.global_batch_size = 4000;
  config.train.gradient_accumulation = 1;
  constexpr std::int64_t kTokens = 4000 * 12;
  const auto activations = [&](DeviceKind device) {
    config.run.device = device;
    return make_plan(config, 4000).ranks.at(0).activations;
  };
  const std::int64_t spared = activations(DeviceKind::cpu) - activations(DeviceKind::cuda);
  CHECK(spared > (kTokens - 2 * 16'384) * 5000 * 8);
  CHECK(spared < (kTokens - 16'384) * 5000 * 8);
}

TEST_CASE("counts follow the model's shapes", "[plan]") {
  const PlanReport plan = make_plan(tiny_gpt(), 80);
  constexpr std::int64_t kHidden = 16;
  constexpr std::int64_t kBlock = 12 * kHidden * kHidden + 13 * kHidden;
  CHECK(plan.parameters == 61 * kHidden + 12 * kHidden + 2 * kBlock + 2 * kHidden);
  CHECK(plan.ranks[0].parameters == plan.parameters + 3 * kHidden);  // padded vocabulary
  CHECK(plan.checkpoint_bytes == plan.parameters * 8 * 3);
  CHECK(plan.tokens_per_step == 16 * 12);
  CHECK(plan.comm_bytes_per_step == 0);
  CHECK(plan.flops_per_step > 6.0 * 2 * kBlock * 16 * 12 * 0.9);
  CHECK(plan.ranks[0].activations > 0);
}

TEST_CASE("data parallelism adds ranks and reductions, not work", "[plan]") {
  const PlanReport one = make_plan(tiny_gpt(), 80);
  const PlanReport four = make_plan(split(tiny_gpt(), 4, 2), 80);
  CHECK(four.world == 4);
  CHECK(four.data == 4);
  REQUIRE(four.ranks.size() == 4);
  CHECK(four.ranks[3].rank == 3);
  CHECK(four.comm_bytes_per_step == one.ranks[0].grads);
  CHECK(four.flops_per_step == Approx(one.flops_per_step));
  CHECK(four.ranks[3].activations < one.ranks[0].activations);
}

TEST_CASE("epochs need the data, budgets are rounded up and say so", "[plan]") {
  Config config = tiny_gpt();
  config.train.steps.reset();
  config.train.epochs = 3;
  CHECK(make_plan(config, 0).total_steps == 0);
  CHECK(contains(to_text(make_plan(config, 0)), "unknown until the data is read"));
  CHECK(make_plan(config, 80).total_steps == 15);
  CHECK(make_plan(config, 81).total_steps == 16);  // last_batch: wrap

  config.train.epochs.reset();
  config.train.tokens = 1000;
  const PlanReport plan = make_plan(config, 80);
  CHECK(plan.total_steps == 6);
  CHECK(contains(to_text(plan),
                 "steps     6  (1,152 tokens, 192 per step; rounded up from 1,000 tokens)\n"));
  config.train.tokens.reset();
  config.train.samples = 20;
  CHECK(make_plan(config, 80).steps_note == "rounded up from 20 samples");
}

TEST_CASE("the text has the lines of config-and-cli 6.1", "[plan]") {
  PlanReport plan = make_plan(split(tiny_gpt(), 2, 2), 80);
  plan.data_lines = {"train here"};
  const std::string text = to_text(plan);
  CHECK(contains(text, "plan      tiny  world 2 = data 2 x pipeline 1 x sequence 1 x tensor 1\n"));
  CHECK(contains(text, "batch     16 = data 2 x micro 4 x accumulation 2\n"));
  CHECK(contains(text, "steps     6  (1,152 tokens, 192 per step)\n"));
  CHECK(contains(text, "model     7.8k parameters (vocab 61 -> 64)\n"));
  CHECK(contains(text, "data      train here\n"));
  CHECK(contains(text, "\nrank      node  gpu  dp  pp  sp  tp  params   weights"));
  CHECK(contains(text, " activ.  buffers  total / capacity\n"));
  CHECK(contains(text, "\n1            0    -   1   0   0   0 "));
  CHECK(contains(text, " / -\n"));
  CHECK(contains(text, "checkpoint  ~186.2 kB each, keep 2 -> peak ~558.7 kB"));
  CHECK(text.back() != '\n');
}

TEST_CASE("the plan counts what retention keeps and what a save holds", "[plan]") {
  Config config = tiny_gpt();
  const std::int64_t full = make_plan(config, 80).checkpoint_bytes;
  config.train.steps = 19'074;
  config.checkpoint.keep_every = 5'000;
  config.checkpoint.keep_best = KeepBestConfig{"train/loss", BestMode::min};
  config.checkpoint.async = true;
  const PlanReport plan = make_plan(config, 80);
  CHECK(plan.checkpoint_bytes == full);
  CHECK(plan.most_checkpoints == 2 + 3 + 1 + 1);
  const std::string text = to_text(plan);
  INFO(text);
  CHECK(contains(text, "checkpoint  ~186.2 kB each, keep 2 + every 5,000 + best -> peak ~1.3 MB"));
  CHECK(contains(text, "; async: copies of up to 186.2 kB in host memory"));
  config.checkpoint.content = CheckpointContent::weights;
  CHECK(make_plan(config, 80).checkpoint_bytes == full / 3);  // AdamW keeps two moments of fp64
}

TEST_CASE("the plan reserves no room for checkpoints that nothing saves", "[plan]") {
  Config config = tiny_gpt();
  config.checkpoint.at_end = false;
  const PlanReport none = make_plan(config, 80);
  CHECK(none.saved_bytes == 0);
  CHECK(none.checkpoint_bytes > 0);
  INFO(to_text(none));
  CHECK(contains(to_text(none),
                 "checkpoint  none, but ~186.2 kB if a signal or a job's deadline stops the run"));
  const auto reserved = [&](const auto& choose) {
    Config saving = config;
    choose(saving);
    return make_plan(saving, 80).saved_bytes;
  };
  CHECK(reserved([](Config& c) { c.checkpoint.at_end = true; }) == none.checkpoint_bytes);
  CHECK(reserved([](Config& c) { c.checkpoint.every_steps = 2; }) == none.checkpoint_bytes);
  CHECK(reserved([](Config& c) { c.checkpoint.every_time_seconds = 60; }) == none.checkpoint_bytes);
  CHECK(reserved([](Config& c) { c.run.max_time_seconds = 60; }) == none.checkpoint_bytes);
}

TEST_CASE("the table knows every rank's place, its capacity and what lies elsewhere", "[plan]") {
  PlanReport plan;
  plan.world = 16;
  plan.data = plan.pipeline = plan.sequence = plan.tensor = 2;
  plan.ranks_per_node = 8;
  plan.device_memory = 2'000;
  for (int rank = 0; rank < 16; ++rank) {
    plan.ranks.push_back({.rank = rank, .parameters = 10, .weights = 40});
  }
  std::string text = to_text(plan);
  INFO(text);
  CHECK(contains(text, "\n0            0    -   0   0   0   0      10     40 B "));
  CHECK(contains(text, "\n5            0    -   0   1   0   1 "));
  CHECK(contains(text, "\n8            1    -   1   0   0   0 "));
  CHECK(contains(text, "\n15           1    -   1   1   1   1 "));
  CHECK(contains(text, "    40 B / 2.0 KiB\n"));
  CHECK_FALSE(contains(text, "host"));
  CHECK_FALSE(contains(text, "disk"));
  CHECK_FALSE(contains(text, "free on"));
  plan.ranks[3].host.grads = 7;
  plan.ranks[4].borrowed = 8;
  plan.output_dir = "/none/of/these";
  text = to_text(plan);
  INFO(text);
  CHECK(contains(text, " buffers  borrowed  total / capacity  host\n"));
  CHECK(contains(text, " 48 B / 2.0 KiB   0 B\n"));
  CHECK(contains(text, "; free on /: "));
}

TEST_CASE("many ranks are cut short in the text and complete in JSON", "[plan]") {
  Config config = tiny_gpt();
  config.train.global_batch_size = 70;
  config.data.num_samples = 140;
  const PlanReport plan = make_plan(split(config, 70, 1), 140);
  CHECK(contains(to_text(plan), "\n63 "));
  CHECK_FALSE(contains(to_text(plan), "\n64 "));
  CHECK(contains(to_text(plan), "... and 6 more ranks (all in --format json)\n"));
  const auto json = nlohmann::json::parse(to_json(plan));
  CHECK(json["ranks"].size() == 70);
  CHECK(json["mesh"]["data"] == 70);
  CHECK(json["ranks"][7]["weights"] == plan.ranks[7].weights);
  CHECK(json["total_steps"] == 6);
}

}  // namespace colossal::test
