// Does the loss of a run in mixed precision fall as PyTorch's does?
#include "golden/gpt_config.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/training.hpp"

#include <ATen/ops/stack.h>

#include <memory>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr const char* kFixture = COLOSSAL_TEST_DATA "/fixtures/mixed.h5";

/// The fixture's batch, as one sample a row.
class OneBatch : public Dataset {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  [[nodiscard]] std::int64_t size() const override { return batch_.at("tokens").size(0); }
  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    Batch rows;
    for (const auto& [name, field] : batch_.fields) {
      std::vector<at::Tensor> parts;
      for (const std::int64_t index : indices) {
        parts.push_back(field.select(0, index));
      }
      rows.fields[name] = at::stack(parts);
    }
    return rows;
  }
  [[nodiscard]] std::string fingerprint() const override { return "one batch"; }
  [[nodiscard]] std::string summary() const override { return "one batch"; }

 private:
  Batch batch_;
};

Config run_config(const Golden& golden, Precision precision) {
  Config config = golden_config(golden, "gpt");
  config.run.name = "mixed";
  config.data.type = DataType::synthetic;
  config.data.seq_length = config.model.max_seq_length;
  config.data.workers = 1;
  config.data.shuffle = false;
  config.train.precision = precision;
  config.train.steps = golden.tensor("gpt/adamw/fp64").size(0);
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 2;
  config.train.gradient_accumulation = 2;
  config.train.clip_grad_norm = golden.number("gpt/adamw", "clip");
  config.train.loss_scale = LossScaleConfig{.init = 1024, .growth = 1, .backoff = 1};
  config.optimizer.lr = golden.number("gpt/adamw", "lr");
  config.optimizer.weight_decay = golden.number("gpt/adamw", "weight_decay");
  config.optimizer.betas = {golden.number("gpt/adamw", "beta1"),
                            golden.number("gpt/adamw", "beta2")};
  config.optimizer.eps = golden.number("gpt/adamw", "eps");
  config.parallel.data = 1;
  config.eval.micro_batch_size = 2;
  return config;
}

Trained run(const Golden& golden, Precision precision) {
  const Config config = run_config(golden, precision);
  const ParallelContext context(config);
  TrainerParts parts = build(
      config, context, {}, {std::make_shared<OneBatch>(golden_batch(golden, "gpt")), nullptr});
  Trainer trainer(std::move(parts), {});
  for (const TensorRecord& record : trainer.records()) {
    constexpr std::string_view kModel = "model/";
    if (record.name.starts_with(kModel)) {
      at::Tensor local = record.local;
      local.copy_(golden.tensor("gpt/weights/" + record.name.substr(kModel.size())));
    }
  }
  trainer.parts().store->publish_masters();
  return finish(trainer);
}

void check_curve(const Golden& golden,
                 Precision precision,
                 const std::string& name,
                 double tolerance) {
  const at::Tensor expected = golden.tensor("gpt/adamw/" + name);
  const Trained trained = run(golden, precision);
  REQUIRE(std::ssize(trained.reports) == expected.size(0));
  for (std::int64_t i = 0; i < expected.size(0); ++i) {
    INFO(name << ", step " << i + 1);
    require_relative(expected.select(0, i).item<double>(),
                     trained.reports[static_cast<std::size_t>(i)].loss,
                     tolerance,
                     "loss");
  }
}

}  // namespace

TEST_CASE("forty steps in mixed precision follow PyTorch's", "[golden]") {
  const Golden golden(kFixture);
  check_curve(golden, Precision::fp64, "fp64", 1e-9);
  check_curve(golden, Precision::bf16, "bf16", 1e-2);
  check_curve(golden, Precision::fp16, "fp16", 2e-3);
}

TEST_CASE("fp16 and bf16 stay near fp64", "[golden]") {
  const Golden golden(kFixture);
  check_curve(golden, Precision::bf16, "fp64", 1e-2);
  check_curve(golden, Precision::fp16, "fp64", 2e-3);
}

}  // namespace colossal::test
