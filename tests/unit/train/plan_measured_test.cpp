// Is the plan's memory what a run takes? Random configurations, measured by the counting allocator.
#include "memory/device_memory.hpp"
#include "mesh/dtype.hpp"
#include "support/catch.hpp"
#include "support/one_thread.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/model.hpp"
#include "train/plan_report.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>

namespace colossal::test {
namespace {

using Random = std::mt19937;

template <class T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& values) {
  return values[random() % N];
}

ActivationCheckpointConfig random_recompute(Random& random) {
  switch (random() % 4) {
    case 0: {
      const auto number = static_cast<std::int64_t>(random() % 6);
      return {.mode = RecomputeMode::full,
              .every = 1 + number % 3,
              .offload = number < 3 ? InputOffload::none : InputOffload::cpu};
    }
    case 1:
      return {.mode = RecomputeMode::selective};
    default:
      return {};
  }
}

void choose_model(Random& random, ModelConfig& model) {
  model.num_layers = static_cast<std::int64_t>(1 + random() % 5);
  model.hidden_size = one_of(random, std::array<std::int64_t, 3>{32, 64, 96});
  model.ffn_hidden_size = model.hidden_size * one_of(random, std::array<std::int64_t, 2>{2, 4});
  model.activation = one_of(
      random, std::array{ActivationKind::gelu, ActivationKind::relu, ActivationKind::swiglu});
  model.dropout = one_of(random, std::array{0.0, 0.1});
  model.attention_dropout = 0;
  model.tie_embeddings = random() % 2 == 0;
  model.max_seq_length = 48;
}

void choose_memory(Random& random, ParallelConfig& parallel) {
  if (random() % 4 == 0) {
    GeminiConfig& gemini = parallel.gemini.emplace();
    gemini.placement =
        one_of(random, std::array{Placement::cuda, Placement::cpu, Placement::fixed});
    gemini.chunk_size = 64 << 10;
    gemini.offload_optim_frac = 0.5;
    return;
  }
  parallel.zero.stage = static_cast<std::int64_t>(random() % 4);
  parallel.zero.prefetch = static_cast<std::int64_t>(random() % 3);
  parallel.zero.offload = one_of(random, std::array{Offload::none, Offload::optimizer});
}

Config random_config(Random& random) {
  Config config = tiny_gpt();
  choose_model(random, config.model);
  choose_memory(random, config.parallel);
  config.data.seq_length = one_of(random, std::array<std::int64_t, 3>{16, 32, 48});
  config.data.prefetch = 1;
  config.train.precision =
      one_of(random, std::array{Precision::fp32, Precision::fp64, Precision::fp16});
  config.train.activation_checkpoint = random_recompute(random);
  config.train.micro_batch_size = one_of(random, std::array<std::int64_t, 3>{1, 2, 4});
  config.train.gradient_accumulation = static_cast<std::int64_t>(1 + random() % 4);
  config.train.global_batch_size =
      config.train.micro_batch_size * config.train.gradient_accumulation;
  config.eval.at_end = false;
  return config;
}

/// The same with attention by plain products: those of the reference, with dropout or without,
/// each k and v head for one q head or several.
Config random_plain_config(Random& random) {
  Config config = random_config(random);
  ModelConfig& model = config.model;
  model.num_heads = 4;
  model.num_kv_heads = one_of(random, std::array<std::int64_t, 3>{1, 2, 4});
  model.attention = AttentionKind::math;
  model.attention_dropout = one_of(random, std::array{0.0, 0.1});
  config.data.seq_length = one_of(random, std::array<std::int64_t, 2>{16, 48});
  return config;
}

std::string describe(const Config& config) {
  const ModelConfig& m = config.model;
  return fmt::format(
      "{} layers, hidden {}, heads {} / {}, attention dropout {}, ffn {}, activation {}, dropout "
      "{}, tied {}, sequence {}, {}, "
      "recompute {} every {}, inputs {}, micro {} x {}, policy {}, offload {}, prefetch {}",
      m.num_layers,
      m.hidden_size,
      m.num_heads,
      m.num_kv_heads,
      m.attention_dropout,
      m.ffn_hidden_size,
      static_cast<int>(m.activation),
      m.dropout,
      m.tie_embeddings,
      config.data.seq_length,
      yaml_word(config.train.precision),
      static_cast<int>(config.train.activation_checkpoint.mode),
      config.train.activation_checkpoint.every,
      static_cast<int>(config.train.activation_checkpoint.offload),
      config.train.micro_batch_size,
      config.train.gradient_accumulation,
      memory_policy(config.parallel),
      static_cast<int>(config.parallel.zero.offload),
      config.parallel.zero.prefetch);
}

/// What a block of a micro-batch was seen to hold, as BlockCost counts it.
struct Held {
  std::int64_t kept = 0, forward = 0, backward = 0;
};

Batch batch_of(const BatchShape& shape) {
  const at::Tensor tokens_bs = at::zeros({shape.batch, shape.sequence}, at::kLong);
  Batch batch;
  batch.fields = {{"tokens", tokens_bs}, {"labels", tokens_bs}};
  batch.loss.factor = 1;
  return batch;
}

/// Runs a block whose input and output are `hidden_bsh` forward and backward.
Held measure(Block& block, const at::Tensor& hidden_bsh, const Batch& batch) {
  DeviceMemory& memory = device_memory();
  const auto boundary = static_cast<std::int64_t>(hidden_bsh.nbytes());
  Activation in;
  in.set("hidden", hidden_bsh.clone().requires_grad_(true));
  const std::int64_t start = memory.use().current - boundary;  // the input is kept
  memory.reset_peak();
  Activation out = block.forward(in, batch);
  const bool ends = out.loss_sum.defined();
  Held held;
  held.forward = memory.use().peak - start;
  held.kept = memory.use().current - start - (ends ? 0 : boundary);
  const torch::autograd::edge_list roots = {
      torch::autograd::impl::gradient_edge(ends ? out.loss_sum : out["hidden"])};
  const torch::autograd::variable_list gradients = {ends ? at::ones_like(out.loss_sum)
                                                         : at::ones_like(hidden_bsh)};
  out = {};
  const std::int64_t before = memory.use().current;
  memory.reset_peak();
  (void)torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true, {});
  held.backward = memory.use().peak - before;
  return held;
}

/// What the first and the last block cost is what they hold; `backward`: how far off that may be.
void check_blocks(Config config, std::int64_t rows, int round, double backward = 0.015) {
  config.parallel.zero = {};
  config.parallel.gemini.reset();
  const BatchShape shape{.batch = rows, .sequence = config.data.seq_length};
  INFO(round << ": " << describe(config));
  const ParallelContext context(config);
  const LiveModel model = build_model(config, context);
  const Batch batch = batch_of(shape);
  const at::Tensor hidden_bsh =
      at::ones({rows, shape.sequence, config.model.hidden_size}, dtype(config.train.precision));
  const auto last = static_cast<int>(model.blocks.size()) - 1;
  model.store->begin_gradients();
  for (const int number : {1, last}) {
    INFO("block " << number);
    Block& block = *model.blocks[static_cast<std::size_t>(number)];
    const BlockCost cost = block.cost(shape);
    model.store->acquire(number, BlockUse::backward);
    (void)measure(block, hidden_bsh, batch);  // what libraries take once
    const Held held = measure(block, hidden_bsh, batch);
    const auto near = [](std::int64_t bytes) {
      return Approx(static_cast<double>(bytes)).epsilon(0.015);
    };
    CHECK(static_cast<double>(cost.activation_bytes) == near(held.kept));
    CHECK(static_cast<double>(cost.activation_bytes + cost.boundary_bytes + cost.forward_bytes) ==
          near(held.forward));
    CHECK(static_cast<double>(cost.backward_bytes + held.kept) ==
          Approx(static_cast<double>(held.backward + held.kept)).epsilon(backward));
    model.store->release(number);
  }
}

}  // namespace

TEST_CASE("a block of any model holds what its cost says", "[plan]") {
  (void)device_memory();
  const OneThread quick;
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    check_blocks(random_config(random), 1, round);
  }
}

TEST_CASE("a block with plain products of attention holds what its cost says", "[plan]") {
  (void)device_memory();
  const OneThread quick;
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    check_blocks(random_plain_config(random), 2, round, 0.03);
  }
}

TEST_CASE("the plan of any configuration is within 3 % of the measured peak", "[plan]") {
  (void)device_memory();
  const OneThread quick;
  // Of those after the first, plans of small models had 4 to 6 % too much or too little: attention
  // in 16 bits, results that forward holds although they are computed again, segments that run
  // again.
  const unsigned seed = GENERATE(11U, 1U, 7U, 109U, 136U);
  const double largest = seed == 11 ? 1e9 : 1e6;
  Random random(seed);
  for (int round = 0; round < 60; ++round) {
    const Config config = random_config(random);
    INFO(seed << ", " << round << ": " << describe(config));
    const auto planned = static_cast<double>(make_plan(config, 80).ranks.front().total());
    if (planned > largest) {
      continue;
    }
    const ParallelContext context(config);
    const std::int64_t before = device_memory().use().current;
    device_memory().reset_peak();
    {
      const auto trainer = make_trainer(config, context, 3);
      (void)trainer->run();
    }
    const auto peak = static_cast<double>(device_memory().use().peak - before);
    CHECK(planned == Approx(peak).epsilon(0.03));
  }
}

}  // namespace colossal::test
