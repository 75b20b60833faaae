// Is the plan's memory what a run takes? Random configurations, measured by the counting allocator.
#include "memory/device_memory.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/plan_report.hpp"

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

std::string describe(const Config& config) {
  const ModelConfig& m = config.model;
  return fmt::format(
      "{} layers, hidden {}, ffn {}, activation {}, dropout {}, tied {}, sequence {}, {}, "
      "recompute {} every {}, inputs {}, micro {} x {}, policy {}, offload {}, prefetch {}",
      m.num_layers,
      m.hidden_size,
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

}  // namespace

TEST_CASE("the plan of any configuration is within 4 % of the measured peak", "[plan]") {
  (void)device_memory();
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const Config config = random_config(random);
    INFO(round << ": " << describe(config));
    const ParallelContext context(config);
    const std::int64_t before = device_memory().use().current;
    device_memory().reset_peak();
    {
      const auto trainer = make_trainer(config, context, 3);
      (void)trainer->run();
    }
    const auto peak = static_cast<double>(device_memory().use().peak - before);
    const auto planned = static_cast<double>(make_plan(config, 80).ranks.front().total());
    CHECK(planned == Approx(peak).epsilon(0.04));
  }
}

}  // namespace colossal::test
