// Does computing again change anything but memory? Losses and weights must not, to the last bit.
#include "train/recompute.hpp"

#include "memory/device_memory.hpp"
#include "memory/gauge.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/model.hpp"
#include "train/plan_report.hpp"

#include <ATen/ops/equal.h>

#include <string>
#include <vector>

namespace colossal::test {
namespace {

using Segments = std::vector<int>;

struct Mode {
  std::string name;
  ActivationCheckpointConfig config;
};

std::vector<Mode> modes(bool fused_attention) {
  std::vector<Mode> all = {
      {"full", {.mode = RecomputeMode::full}},
      {"full, every 2", {.mode = RecomputeMode::full, .every = 2}},
      {"full, every 5", {.mode = RecomputeMode::full, .every = 5}},
      {"full, 2 blocks", {.mode = RecomputeMode::full, .blocks = 2}},
      {"full, every 2 of 3 blocks", {.mode = RecomputeMode::full, .every = 2, .blocks = 3}},
      {"full, inputs on the host", {.mode = RecomputeMode::full, .offload = InputOffload::cpu}},
      {"full, every 3, inputs on the host",
       {.mode = RecomputeMode::full, .every = 3, .offload = InputOffload::cpu}},
      {"full, 2 blocks, inputs on the host",
       {.mode = RecomputeMode::full, .blocks = 2, .offload = InputOffload::cpu}},
      {"selective", {.mode = RecomputeMode::selective}},
      {"gelu", {.mode = RecomputeMode::selective, .recompute = {"gelu"}}},
      {"norm and mlp", {.mode = RecomputeMode::selective, .recompute = {"norm", "mlp"}}}};
  if (fused_attention) {
    all.push_back(
        {"everything",
         {.mode = RecomputeMode::selective, .recompute = {"gelu", "norm", "attention", "mlp"}}});
  }
  return all;
}

/// Four blocks between embedding and head.
Config four_blocks() {
  Config config = tiny_gpt();
  config.model.num_layers = 4;
  config.train.steps = 3;
  return config;
}

Segments segments_of(const Config& config, const ActivationCheckpointConfig& mode) {
  const ParallelContext alone(config);
  const ModelParts model = make_model(config, alone);
  return recompute_segments(mode, model.blocks, {.batch = 2, .sequence = 12});
}

void require_bit_equal(const Trained& expected, const Trained& got) {
  REQUIRE(got.reports.size() == expected.reports.size());
  for (std::size_t i = 0; i < got.reports.size(); ++i) {
    CHECK(got.reports[i].loss == expected.reports[i].loss);
    CHECK(got.reports[i].grad_norm == expected.reports[i].grad_norm);
  }
  for (const auto& [name, tensor] : expected.tensors) {
    INFO(name);
    CHECK(at::equal(tensor, got.tensors.at(name)));
  }
}

std::int64_t planned_activations(Config config, const ActivationCheckpointConfig& mode) {
  config.train.activation_checkpoint = mode;
  return make_plan(config, 80).ranks[0].activations;
}

/// Bytes that all blocks keep for backward, if none runs again.
std::int64_t kept_bytes(Config config, const ActivationCheckpointConfig& mode) {
  config.train.activation_checkpoint = mode;
  const ParallelContext context(config);
  std::int64_t sum = 0;
  const ModelParts parts = make_model(config, context);
  for (const auto& block : parts.blocks) {
    sum += block->cost({.batch = 16, .sequence = 12}).activation_bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("blocks that run again are grouped; embedding and head are not", "[recompute]") {
  const Config config = four_blocks();
  const auto full = [](std::int64_t every, std::optional<std::int64_t> blocks) {
    return ActivationCheckpointConfig{
        .mode = RecomputeMode::full, .every = every, .blocks = blocks};
  };
  CHECK(segments_of(config, {}) == Segments(6, kKept));
  CHECK(segments_of(config, {.mode = RecomputeMode::selective}) == Segments(6, kKept));
  CHECK(segments_of(config, full(1, {})) == Segments{kKept, 1, 2, 3, 4, kKept});
  CHECK(segments_of(config, full(2, {})) == Segments{kKept, 1, 1, 3, 3, kKept});
  CHECK(segments_of(config, full(3, {})) == Segments{kKept, 1, 1, 1, 4, kKept});
  CHECK(segments_of(config, full(9, {})) == Segments{kKept, 1, 1, 1, 1, kKept});
  CHECK(segments_of(config, full(1, 2)) == Segments{kKept, 1, 2, kKept, kKept, kKept});
  CHECK(segments_of(config, full(2, 3)) == Segments{kKept, 1, 1, 3, kKept, kKept});
  CHECK(segments_of(tiny_mlp(), full(1, {})) == Segments{0, 1, kKept});
}

TEST_CASE("losses and weights are bit-equal in every mode, dropout included", "[recompute]") {
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    for (const bool fused : {false, true}) {  // attention dropout rules the fused kernel out
      Config config = four_blocks();
      config.train.precision = precision;
      config.model.attention_dropout = fused ? 0 : 0.1;
      config.model.activation = fused ? ActivationKind::swiglu : ActivationKind::gelu_tanh;
      config = split(config, 1, 2);
      const ParallelContext context(config);
      const Trained expected = train(config, context);
      for (const Mode& mode : modes(fused)) {
        INFO(mode.name << ", fused attention: " << fused);
        config.train.activation_checkpoint = mode.config;
        require_bit_equal(expected, train(config, context));
      }
    }
  }
}

TEST_CASE("so few rows that evaluation would use another kernel change nothing", "[recompute]") {
  Config config = tiny_mlp();
  config.train.precision = Precision::fp32;
  const ParallelContext context(config);
  const Trained expected = train(config, context);
  config.train.activation_checkpoint.mode = RecomputeMode::full;
  require_bit_equal(expected, train(config, context));
  config.train.activation_checkpoint.offload = InputOffload::cpu;  // the first block has no input
  require_bit_equal(expected, train(config, context));
}

TEST_CASE("micro-batches may wait for their backward", "[recompute]") {
  const InputOffload offload = GENERATE(InputOffload::none, InputOffload::cpu);
  Config config = four_blocks();
  config.train.activation_checkpoint = {
      .mode = RecomputeMode::full, .every = 2, .offload = offload};
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  std::vector<std::int64_t> first = {0, 1};
  std::vector<std::int64_t> second = {2, 3};
  const std::vector<Batch> batches = {parts.train_data->read(first),
                                      parts.train_data->read(second)};
  const auto gradient = [&](const std::vector<int>& forwards, const std::vector<int>& backwards) {
    parts.store->begin_gradients();
    parts.stage->begin_step(1);
    for (const int i : forwards) {
      parts.stage->forward(i, batches[static_cast<std::size_t>(i)]);
    }
    for (const int i : backwards) {
      parts.stage->backward(i, i == backwards.back());
    }
    parts.store->finish_gradients();
    return parts.store->shards()[0].grad.clone();
  };
  const at::Tensor both = gradient({0, 1}, {0, 1});
  const at::Tensor alone = gradient({0}, {0}).add(gradient({1}, {1}));
  CHECK(both.sub(alone).abs().max().item<double>() < 1e-13);
  CHECK(alone.abs().max().item<double>() > 0);
}

TEST_CASE("what is held while each block runs", "[recompute]") {
  // activations 100 each, boundaries 10 each, 7 to work with
  const std::vector<BlockCost> costs(
      5, BlockCost{.activation_bytes = 100, .boundary_bytes = 10, .backward_bytes = 7});
  const auto moments = [&](const Segments& segments, InputOffload offload = InputOffload::none) {
    std::vector<std::vector<std::int64_t>> numbers;
    for (const BlockActivations& block : block_activations(segments, costs, offload)) {
      numbers.push_back({block.forward, block.backward, block.after});
    }
    return numbers;
  };
  using Moments = std::vector<std::vector<std::int64_t>>;
  CHECK(moments(Segments(5, kKept)) ==
        Moments{{110, 117, 0}, {210, 217, 120}, {310, 317, 220}, {410, 417, 320}, {510, 517, 420}});
  // between the kept ones three that keep their inputs of 10
  CHECK(moments(Segments{kKept, 1, 2, 3, kKept}) ==
        Moments{{110, 117, 0}, {210, 217, 120}, {220, 227, 130}, {230, 237, 140}, {240, 247, 150}});
  // a segment of three keeps one input, and runs again as a whole
  CHECK(moments(Segments{kKept, 1, 1, 1, kKept}) ==
        Moments{{110, 117, 0}, {210, 217, 120}, {220, 317, 220}, {220, 417, 320}, {220, 227, 130}});
  // in host memory no input is kept, but in backward the next one is on its way back
  CHECK(moments(Segments{kKept, 1, 2, 3, kKept}, InputOffload::cpu) ==
        Moments{{110, 117, 0}, {210, 217, 120}, {210, 227, 130}, {210, 227, 130}, {210, 227, 130}});
  CHECK(moments(Segments{kKept, 1, 1, 3, kKept}, InputOffload::cpu) ==
        Moments{{110, 117, 0}, {210, 217, 120}, {210, 317, 220}, {210, 227, 130}, {210, 227, 130}});
  // What runs again is held up to its block, beside the gradient of 10 that waits for the segment.
  const auto again = [&](const Segments& segments, InputOffload offload) {
    const std::vector<BlockActivations> blocks = block_activations(segments, costs, offload);
    return std::vector{blocks[1].again, blocks[2].again, blocks[3].again};
  };
  using Bytes = std::vector<std::int64_t>;
  CHECK(again({kKept, 1, 1, 1, kKept}, InputOffload::none) == Bytes{220, 320, 420});
  CHECK(again({kKept, 1, 2, 3, kKept}, InputOffload::none) == Bytes{220, 230, 240});
  // and beside the input of the segment below, on its way back
  CHECK(again({kKept, 1, 1, 3, kKept}, InputOffload::cpu) == Bytes{220, 320, 230});
}

TEST_CASE("the input that comes back next is that of the segment below", "[recompute]") {
  const Segments segments = {kKept, 1, 1, 3, kKept, 5, 5, kKept};
  const std::vector<std::optional<int>> ahead = {{}, {}, {}, 1, 3, 3, 3, 5};
  for (int block = 0; block < std::ssize(segments); ++block) {
    INFO(block);
    CHECK(segment_ahead(segments, block) == ahead[static_cast<std::size_t>(block)]);
  }
  // whole pages for the inputs of three segments; nothing enters a first block
  const std::vector<BlockCost> costs(8, BlockCost{.boundary_bytes = 4097});
  CHECK(host_input_bytes(segments, costs) == std::int64_t{3} * 2 * 4096);
  CHECK(host_input_bytes(Segments(8, kKept), costs) == 0);
  CHECK(host_input_bytes(Segments(8, 0), costs) == 0);
}

TEST_CASE("inputs in host memory leave room on the device, as much as planned", "[recompute]") {
  (void)device_memory();
  Config config = four_blocks();
  config.model.num_layers = 12;
  config.data.seq_length = 12;
  config.train.activation_checkpoint.mode = RecomputeMode::full;
  config.eval.at_end = false;
  struct Measured {
    std::int64_t device = 0, host = 0;
  };
  const ParallelContext context(config);
  const auto measure = [&](InputOffload offload) {
    config.train.activation_checkpoint.offload = offload;
    MemoryGauge& host = gauge(MemoryKind::host);
    const std::int64_t before = device_memory().use().current;
    device_memory().reset_peak();
    host.reset_peak();
    (void)make_trainer(config, context, 3)->run();
    CHECK(host.use().current == 0);  // it goes with the run
    return Measured{device_memory().use().peak - before, host.use().peak};
  };
  const Measured here = measure(InputOffload::none);
  const RankBytes plan_here = make_plan(config, 80).ranks[0];
  const Measured away = measure(InputOffload::cpu);
  const RankBytes plan_away = make_plan(config, 80).ranks[0];
  const std::int64_t input = std::int64_t{16} * 12 * 16 * 8;  // tokens, width, fp64
  // Of 12 inputs the one in use and the one that comes back are here.
  CHECK(here.device - away.device == 10 * input);
  CHECK(plan_here.total() - plan_away.total() == 10 * input);
  CHECK(plan_here.host.total() == 0);
  CHECK(here.host < input);  // initial values pass through
  CHECK(plan_away.host.inputs == 12 * input);
  CHECK(plan_away.host.total() == 12 * input);
  CHECK(away.host == 12 * input);
}

TEST_CASE("the plan's activations shrink with every step of recomputation", "[recompute]") {
  Config config = four_blocks();
  config.model.attention_dropout = 0;
  const auto planned = [&](const ActivationCheckpointConfig& mode) {
    return planned_activations(config, mode);
  };
  const std::int64_t none = planned({});
  const std::int64_t gelu = planned({.mode = RecomputeMode::selective, .recompute = {"gelu"}});
  const std::int64_t both = planned({.mode = RecomputeMode::selective});
  const std::int64_t all = planned(
      {.mode = RecomputeMode::selective, .recompute = {"gelu", "norm", "attention", "mlp"}});
  const std::int64_t pairs = planned({.mode = RecomputeMode::full, .every = 2});
  const std::int64_t full = planned({.mode = RecomputeMode::full});
  CHECK(none > gelu);
  CHECK(gelu > both);
  CHECK(both > all);
  CHECK(none > pairs);
  CHECK(pairs > full);
  const std::int64_t tokens = 16 * 12;
  const auto kept = [&](const std::vector<std::string>& again) {
    return kept_bytes(config, {.mode = RecomputeMode::selective, .recompute = again});
  };
  // 4 blocks, f = 64, fp64
  CHECK(kept_bytes(config, {}) - kept({"gelu"}) == tokens * 4 * 64 * 8);
  // two norms, and the head's
  CHECK(kept({"gelu"}) - kept({"gelu", "norm"}) == tokens * (4 * 2 * 16 + 16) * 8);
  // product, context, 2 log-sums
  CHECK(kept({"gelu", "norm"}) - kept({"gelu", "norm", "attention", "mlp"}) ==
        tokens * 4 * (64 + 16 + 2) * 8);
  CHECK(planned({.mode = RecomputeMode::full, .blocks = 4}) == full);
}

}  // namespace colossal::test
