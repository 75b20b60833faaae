// Does a model that goes all the ways of a large one on a GPU - products with epilogues, cuDNN's
// attention, a head in parts - learn what it learns on a CPU?
#include "core/fault.hpp"
#include "cuda/deterministic.hpp"
#include "cuda/fast_gpt.hpp"
#include "cuda/trained.hpp"
#include "support/close.hpp"
#include "support/gpu.hpp"
#include "support/temp_dir.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

namespace colossal::test {
namespace {

double tolerance(Precision precision) {
  return precision == Precision::fp32 ? 1e-5 : 2e-2;
}

Config fp16_from(double scale) {
  Config config = fast_gpt(Precision::fp16);
  config.train.loss_scale = LossScaleConfig{.init = scale, .growth_interval = 4, .hysteresis = 1};
  return config;
}

}  // namespace

TEST_CASE("the kernels of a large model learn what a CPU learns", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    INFO(yaml_word(precision));
    const Config config = fast_gpt(precision);
    check_losses(on_cpu(config), on_gpu(config), tolerance(precision));
  }
}

TEST_CASE("a head in parts has the losses of a whole one", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    INFO(yaml_word(precision));
    const Config parts = fast_gpt(precision, 384);  // 24,576 tokens are more than one part
    check_losses(on_gpu(split(parts, 1, 4)), on_gpu(parts), tolerance(precision));
  }
}

TEST_CASE("accumulation changes no loss of the kernels of a large model", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    INFO(yaml_word(precision));
    const Config config = fast_gpt(precision);
    check_losses(on_gpu(config), on_gpu(split(config, 1, 4)), tolerance(precision));
  }
}

TEST_CASE("a scale that is too high falls until fp16 gradients fit", "[cuda][train]") {
  NEEDS_GPUS(1)
  const Config config = fp16_from(0x1p32);
  const Trained gpu = on_gpu(config);
  CHECK(gpu.state.skipped > 3);
  CHECK(gpu.reports.back().loss_scale < 0x1p28);
  CHECK(gpu.reports.back().loss < gpu.reports.front().loss);
  const Trained fits = on_gpu(fp16_from(1024));
  CHECK(fits.state.skipped == 0);
  // Skipped steps have used up their samples: the two have seen others since.
  require_relative(fits.reports.back().loss, gpu.reports.back().loss, 0.1, "last loss");
}

TEST_CASE("an infinite gradient of a GPU skips the update and changes nothing", "[cuda][train]") {
  NEEDS_GPUS(1)
  ::setenv("COLOSSAL_FAULT", "rank=0,step=3,kind=inf", 1);
  if (fault::at_step(0, 3) != fault::Poison::gradient) {
    ::unsetenv("COLOSSAL_FAULT");
    WARN("skipped: built without COLOSSAL_FAULTS");
    return;
  }
  const Config config = fp16_from(1024);
  Tensors before;
  const Trained run =
      train(config, ParallelContext(config, kGpu), [&](Trainer& trainer, const StepReport& report) {
        if (report.step == 2) {
          before = copy_records(trainer);
        }
        if (report.skipped) {
          ::unsetenv("COLOSSAL_FAULT");
          CHECK(report.step == 3);
          CHECK(std::isfinite(report.loss));
          for (const auto& [name, tensor] : copy_records(trainer)) {
            INFO(name);
            CHECK(at::equal(before.at(name), tensor));
          }
        }
      });
  CHECK(run.state.skipped == 1);
  CHECK(run.reports.size() == 7);
}

TEST_CASE("what runs again in backward on a GPU has the bits of the first time", "[cuda][train]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    INFO(yaml_word(precision));
    Config config = fast_gpt(precision);
    const Trained kept = on_gpu(config);
    config.train.activation_checkpoint.mode = RecomputeMode::full;
    check_bits(kept, on_gpu(config));
    config.train.activation_checkpoint.offload = InputOffload::cpu;
    for (const std::int64_t every : {1, 2}) {
      config.train.activation_checkpoint.every = every;
      check_bits(kept, on_gpu(config));
    }
    check_bits(on_gpu(split(config, 1, 4)), on_gpu(split(config, 1, 4)));
    config.train.activation_checkpoint.offload = InputOffload::none;
    config.train.activation_checkpoint.every = 1;
    // Layers that run again alone use kernels that write one result each: other roundings.
    config.train.activation_checkpoint.mode = RecomputeMode::selective;
    config.train.activation_checkpoint.recompute = {"gelu", "norm", "attention", "mlp"};
    const Trained some = on_gpu(config);
    check_losses(kept, some, tolerance(precision));
    check_bits(some, on_gpu(config));
  }
}

TEST_CASE("two deterministic runs have equal bits, also where a large model runs",
          "[cuda][train]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    INFO(yaml_word(precision));
    const Config config = fast_gpt(precision, 384);
    check_bits(on_gpu(config), on_gpu(config));
  }
}

TEST_CASE("a checkpoint of 16 bits goes on on the other device", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    INFO(yaml_word(precision));
    const Config config = precision == Precision::fp16 ? fp16_from(1024) : fast_gpt(precision);
    const ParallelContext cpu(config);
    const ParallelContext gpu(config, kGpu);
    const Trained whole = train(config, cpu);
    for (const auto& [first, second] : {std::pair(&gpu, &cpu), std::pair(&cpu, &gpu)}) {
      const TempDir folder;
      const auto begun = make_trainer(config, *first, 3);
      static_cast<void>(finish(*begun));
      const auto saved = save(*begun, folder.path(), cpu.comm(data_axes()));
      const auto resumed = make_trainer(config, *second, config.train.steps.value(), saved);
      const Trained rest = finish(*resumed);
      REQUIRE(rest.reports.size() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        require_relative(whole.reports[3 + i].loss, rest.reports[i].loss, 2e-2, "loss");
      }
    }
  }
}

}  // namespace colossal::test
