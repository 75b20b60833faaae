// Which dtypes follow from precision, accumulation and the number of data ranks?
#include "memory/store_options.hpp"

#include "config/load.hpp"
#include "memory/chunk_plan.hpp"
#include "memory_helpers.hpp"

#include <array>
#include <string>

namespace colossal::test {
namespace {

Config bf16(std::int64_t data, std::int64_t accumulation) {
  Config config;
  config.train.precision = Precision::bf16;
  config.train.gradient_accumulation = accumulation;
  config.parallel.data = data;
  return config;
}

/// A small configuration of bf16 with these lines more.
Config from_yaml(const std::string& train, const std::string& rest) {
  const Loaded loaded = load_text(
      "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2, vocab_size: 10}\n"
      "data: {type: synthetic, seq_length: 8}\n"
      "train: {steps: 1, micro_batch_size: 1, precision: bf16" +
          train +
          "}\n"
          "optimizer: {type: adamw, lr: 1e-3}\n" +
          rest,
      "run.yaml");
  INFO(render(loaded.diagnostics));
  REQUIRE_FALSE(loaded.has_errors());
  return loaded.config;
}

}  // namespace

TEST_CASE("train.grad_dtype says in what gradients are summed, however many are",
          "[store_options]") {
  for (const char* accumulation : {"1", "4"}) {
    const std::string train = std::string(", gradient_accumulation: ") + accumulation;
    CHECK(store_options(from_yaml(train + ", grad_dtype: fp32", "")).grad == at::kFloat);
    CHECK(store_options(from_yaml(train + ", grad_dtype: same", "")).grad == at::kBFloat16);
    CHECK(store_options(from_yaml(train, "")).grad ==
          (*accumulation == '1' ? at::kBFloat16 : at::kFloat));
  }
}

TEST_CASE("the shares of a measured plan are those of the configuration", "[store_options]") {
  const auto shares = [](const std::string& keys) {
    const Config config = from_yaml(", gradient_accumulation: 1",
                                    "run: {device: cpu, device_memory: 1MiB}\n"
                                    "parallel: {gemini: {placement: auto" +
                                        keys + "}}\n");
    const std::array params = {spec_of("w", {16})};
    const std::array<std::vector<int>, 1> blocks = {{{0}}};
    const ChunkPlan plan =
        chunk_planners()
            .make(memory_policy(config.parallel),
                  {.chunk_bytes = 1024, .zero = {}, .gemini = *config.parallel.gemini})
            ->plan(params, blocks, Mesh(MeshShape{}, 0));
    REQUIRE(plan.measured.has_value());
    return *plan.measured;
  };
  const MeasuredBudget given =
      shares(", steady_cuda_cap_ratio: 0.7, margin_ratio: 0.25, reserve: 0.125");
  CHECK(given.steady_ratio == 0.7);
  CHECK(given.margin_ratio == 0.25);
  CHECK(given.reserve == 0.125);
  CHECK(shares("").steady_ratio == 0.9);
  CHECK(shares("").margin_ratio == 0.8);
}

TEST_CASE(
    "gradients are summed in fp32 over ranks, and left as they are where one rank has them all",
    "[store_options]") {
  for (const std::int64_t accumulation : {1, 4}) {
    const at::ScalarType kept = accumulation > 1 ? at::kFloat : at::kBFloat16;
    CHECK(store_options(bf16(1, accumulation)).grad == kept);
    CHECK(store_options(bf16(1, accumulation)).reduce == kept);
    CHECK(store_options(bf16(2, accumulation)).grad == kept);
    CHECK(store_options(bf16(2, accumulation)).reduce == at::kFloat);
    Config same = bf16(2, accumulation);
    same.parallel.zero.reduce_dtype = ReduceDtype::same;
    CHECK(store_options(same).reduce == kept);
  }
}

TEST_CASE("masters and states are fp32 under 16 bits and fp64 under fp64", "[store_options]") {
  Config config = bf16(1, 1);
  CHECK(store_options(config).compute == at::kBFloat16);
  CHECK(store_options(config).master == at::kFloat);
  CHECK(store_options(config).state == at::kFloat);
  config.optimizer.state_dtype = StateDtype::bf16;
  CHECK(store_options(config).state == at::kBFloat16);
  config.train.precision = Precision::fp64;
  config.optimizer.state_dtype = StateDtype::fp32;
  CHECK(store_options(config).master == at::kDouble);
  CHECK(store_options(config).state == at::kDouble);
}

}  // namespace colossal::test
