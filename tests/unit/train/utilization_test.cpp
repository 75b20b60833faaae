// Is the share of a GPU's peak what the formula of PaLM gives, and silent where nobody knows it?
#include "train/utilization.hpp"

#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "train/summary.hpp"
#include "train/trainer.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace colossal {
namespace {

constexpr const char* kH100 = "cuda:0, NVIDIA H100 80GB HBM3, 79.2 GiB";

/// GPT-2's smallest size in bf16 on so many GPUs.
Config gpt2(std::int64_t gpus = 1) {
  Config config;
  config.model.num_layers = 12;
  config.model.hidden_size = 768;
  config.data.seq_length = 1024;
  config.train.precision = Precision::bf16;
  config.parallel.data = gpus;
  return config;
}

constexpr std::int64_t kParameters = 124'475'904;

TEST_CASE("a token of GPT-2 124M costs 860 MFLOP by the convention of PaLM", "[mfu]") {
  const auto found =
      utilization(gpt2(), kH100, kParameters, {.steps = 2, .tokens = 1, .seconds = 1});
  REQUIRE(found.has_value());
  CHECK(found->flops_per_token() == 6.0 * kParameters + 12.0 * 12 * 768 * 1024);
  CHECK(found->flops_per_token() == Approx(860.1e6).epsilon(1e-3));
}

TEST_CASE("the share is of the peak of all GPUs together", "[mfu]") {
  const StepRate rate{.steps = 9, .tokens = 4'860'000, .seconds = 10};
  const double one = utilization(gpt2(1), kH100, kParameters, rate)->share();
  CHECK(one == Approx(860.1e6 * 486'000 / 989e12).epsilon(1e-3));
  CHECK(utilization(gpt2(4), kH100, kParameters, rate)->share() == Approx(one / 4));
}

TEST_CASE("the end of a run prints the formula with its numbers", "[mfu]") {
  const StepRate rate{.steps = 9, .tokens = 4'860'000, .seconds = 10};
  CHECK(to_text(*utilization(gpt2(), kH100, kParameters, rate)) ==
        "42.3% of 989 TFLOP/s: (6 N + 12 L C T) x 486,000 tokens/s, with N = 124.5M, L = 12, C = "
        "768, T = 1024 (PaLM)");
  CHECK(to_text(*utilization(gpt2(2), kH100, kParameters, rate))
            .starts_with("21.1% of 989 TFLOP/s on each of 2 GPUs: "));
}

TEST_CASE("a peak is known for 16 bits and tf32 on known cards only", "[mfu]") {
  CHECK(peak_flops("NVIDIA H100 80GB HBM3", Precision::bf16) == 989e12);
  CHECK(peak_flops("NVIDIA H100 80GB HBM3", Precision::fp16) == 989e12);
  CHECK(peak_flops("NVIDIA H200", Precision::bf16) == 989e12);
  CHECK(peak_flops("NVIDIA H200", Precision::tf32) == 494e12);
  CHECK_FALSE(peak_flops("NVIDIA H100 80GB HBM3", Precision::fp32).has_value());
  CHECK_FALSE(peak_flops("NVIDIA H100 80GB HBM3", Precision::fp64).has_value());
  CHECK_FALSE(peak_flops("NVIDIA H100 PCIe", Precision::bf16).has_value());  // a slower card
  CHECK_FALSE(peak_flops("NVIDIA A100-SXM4-80GB", Precision::bf16).has_value());
  CHECK_FALSE(peak_flops("cpu", Precision::bf16).has_value());
  CHECK_FALSE(peak_flops("", Precision::bf16).has_value());
}

TEST_CASE("without a peak, a gpt or a second step there is no share", "[mfu]") {
  const StepRate rate{.steps = 9, .tokens = 100, .seconds = 1};
  CHECK_FALSE(utilization(gpt2(), "cpu", kParameters, rate).has_value());
  CHECK_FALSE(utilization(gpt2(), kH100, kParameters, {}).has_value());
  Config mlp = gpt2();
  mlp.model.type = ModelType::mlp;
  CHECK_FALSE(utilization(mlp, kH100, kParameters, rate).has_value());
  Config exact = gpt2();
  exact.train.precision = Precision::fp32;
  CHECK_FALSE(utilization(exact, kH100, kParameters, rate).has_value());
}

TEST_CASE("the first step of a process is not timed, all others are", "[mfu]") {
  StepRate rate;
  rate.add(10, 100);
  CHECK(rate.tokens == 0);
  CHECK(rate.seconds == 0);
  rate.add(7, 0.5);
  rate.add(8, 0.25);
  CHECK(rate.steps == 3);
  CHECK(rate.tokens == 15);
  CHECK(rate.seconds == 0.75);
}

TEST_CASE("a run on a cpu has no share of a peak", "[mfu]") {
  Config config = test::tiny_gpt();
  config.train.precision = Precision::bf16;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, RunState{}), RunState{});
  CHECK_FALSE(measure_utilization(trainer, {.steps = 3, .tokens = 9, .seconds = 1}).has_value());
}

TEST_CASE("the end of a run says the share where it is known, to people and programs", "[mfu]") {
  RunSummary summary;
  CHECK(to_text(summary).find("\nmfu ") == std::string::npos);
  CHECK_FALSE(nlohmann::json::parse(to_json_line(summary)).contains("mfu_palm"));
  const StepRate rate{.steps = 9, .tokens = 4'860'000, .seconds = 10};
  summary.utilization = utilization(gpt2(), kH100, kParameters, rate);
  CHECK(to_text(summary).find("\nmfu       42.3% of 989 TFLOP/s: (6 N + 12 L C T) x ") !=
        std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(to_json_line(summary));
  CHECK(json.at("mfu_palm").get<double>() == Approx(0.4227).epsilon(1e-3));
  CHECK(json.at("flops_per_token").get<double>() == summary.utilization->flops_per_token());
}

}  // namespace
}  // namespace colossal
