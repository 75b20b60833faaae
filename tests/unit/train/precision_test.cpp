// Does training in 16 bits follow training in fp32, and does the loss scale do what it must?
#include "core/fault.hpp"
#include "core/log.hpp"
#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

Config in_precision(Precision precision) {
  Config config = tiny_gpt();
  config.train.precision = precision;
  config.optimizer.eps = 1e-6;
  return config;
}

/// fp16 with a first scale that overflows, and one that grows soon.
Config lively_fp16() {
  Config config = in_precision(Precision::fp16);
  config.train.loss_scale =
      LossScaleConfig{.init = 0x1p26, .growth_interval = 2, .max = 0x1p30, .hysteresis = 1};
  return config;
}

Trained trained(const Config& config) {
  const ParallelContext context(config);
  return train(config, context);
}

void check_equal(const Tensors& expected, const Tensors& got) {
  REQUIRE(expected.size() == got.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    CHECK(at::equal(tensor, got.at(name)));
  }
}

}  // namespace

TEST_CASE("16 bits follow fp32, with masters in fp32", "[precision]") {
  const Trained wide = trained(in_precision(Precision::fp32));
  for (const auto& [precision, tolerance] :
       {std::pair{Precision::bf16, 1e-2}, std::pair{Precision::fp16, 2e-3}}) {
    const Trained half = trained(in_precision(precision));
    REQUIRE(half.reports.size() == wide.reports.size());
    for (std::size_t i = 0; i < half.reports.size(); ++i) {
      require_relative(wide.reports[i].loss, half.reports[i].loss, tolerance, "loss");
      require_relative(
          wide.reports[i].grad_norm, half.reports[i].grad_norm, 10 * tolerance, "norm");
      CHECK(half.reports[i].data_hash == wide.reports[i].data_hash);
    }
    for (const auto& [name, tensor] : half.tensors) {
      INFO(name);
      CHECK(tensor.scalar_type() == at::kFloat);
      // a master that was rounded would be equal to its rounding
      const bool rounded = at::equal(tensor.to(at::kBFloat16).to(at::kFloat), tensor);
      CHECK((!rounded || tensor.numel() == 0 || !name.ends_with("mlp.up.weight")));
    }
  }
}

TEST_CASE("initial masters are the initial weights of fp32", "[precision]") {
  const Config wide = in_precision(Precision::fp32);
  const ParallelContext wide_context(wide);
  Trainer expected(build(wide, wide_context, {}), {});
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Config half = in_precision(precision);
    const ParallelContext context(half);
    Trainer trainer(build(half, context, {}), {});
    check_equal(copy_records(expected), copy_records(trainer));
    const Parameter& weight = *trainer.parts().store->parameters()[0];
    trainer.parts().store->acquire(0, BlockUse::eval);
    CHECK(weight.tensor().scalar_type() == dtype(precision));
    trainer.parts().store->release(0);
  }
}

TEST_CASE("the scale of the loss does not show in losses, norms and weights", "[precision]") {
  std::vector<Trained> runs;
  for (const double scale : {64.0, 4096.0}) {
    Config config = in_precision(Precision::fp16);
    config.train.loss_scale = LossScaleConfig{.init = scale, .growth = 1, .backoff = 1};
    runs.push_back(trained(config));
    CHECK(runs.back().reports.back().loss_scale == scale);
  }
  for (std::size_t i = 0; i < runs[0].reports.size(); ++i) {
    require_relative(runs[0].reports[i].loss, runs[1].reports[i].loss, 1e-3, "loss");
    require_relative(runs[0].reports[i].grad_norm, runs[1].reports[i].grad_norm, 1e-2, "norm");
  }
}

TEST_CASE("overflow skips the update whatever nonfinite says, and the scale falls", "[precision]") {
  const Config config = lively_fp16();
  REQUIRE(config.train.nonfinite == NonFinite::stop);
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  Tensors before = copy_records(trainer);
  double scale = 0x1p26;
  std::int64_t skipped = 0;
  std::int64_t consumed = 0;
  const Trained run = finish(trainer, [&](Trainer& running, const StepReport& report) {
    CHECK(running.state().consumed == (consumed += 16));
    Tensors after = copy_records(running);
    if (report.skipped) {
      CHECK(report.loss_scale == scale);
      scale /= 2;
      ++skipped;
      check_equal(before, after);  // weights and both moments
    } else {
      CHECK_FALSE(at::equal(before.at("model/norm.weight"), after.at("model/norm.weight")));
    }
    scale = running.state().loss_scale->scale;
    before = std::move(after);
  });
  CHECK(skipped > 0);
  CHECK(run.state.skipped == skipped);
  CHECK(run.state.step == 6);
  CHECK(run.reports.size() == static_cast<std::size_t>(6 + skipped));
  std::int64_t updates = 0;
  for (const StepReport& report : run.reports) {  // the schedule waits for skipped steps
    CHECK(report.step == updates + 1);
    updates += report.skipped ? 0 : 1;
  }
}

TEST_CASE("a scale that does not help ends the run", "[precision]") {
  Config config = in_precision(Precision::fp16);
  config.train.loss_scale =
      LossScaleConfig{.init = 0x1p40, .growth = 1, .backoff = 1, .max = 0x1p41};
  config.train.max_skipped_steps = 3;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  try {
    trainer.run();
    FAIL("it went on");
  } catch (const Error& error) {
    CHECK(error.id() == "too-many-skipped");
    CHECK(std::string(error.what()).find("loss scale 1099511627776") != std::string::npos);
  }
}

TEST_CASE("a scale at its minimum is told, and ends the run if it does not help", "[precision]") {
  ::setenv("COLOSSAL_FAULT", "rank=0,step=2,kind=inf", 1);
  const bool compiled_in = fault::at_step(0, 2) == fault::Poison::gradient;
  const TempDir folder;
  log::configure({.level = log::Level::info, .rank = 0, .folder = folder.path()});
  Config config = in_precision(Precision::fp16);
  config.train.loss_scale = LossScaleConfig{.init = 2, .min = 1, .hysteresis = 1};
  config.train.max_skipped_steps = 2;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  std::string text = "none";
  try {
    trainer.run();
  } catch (const Error& error) {
    text = std::string(error.id());
  }
  ::unsetenv("COLOSSAL_FAULT");
  log::flush();
  const std::string told = read_text(log::file_of(folder.path(), 0));
  log::configure({.level = log::Level::info, .rank = 0, .folder = {}});
  CHECK(text == (compiled_in ? "too-many-skipped" : "none"));
  INFO(told);
  // The first overflow halves the scale, the second finds it at 1, the third is one too many.
  const std::size_t at = told.find("[loss-scale-min] step 2: gradients overflow at the lowest");
  CHECK((at != std::string::npos) == compiled_in);
  CHECK((!compiled_in || told.find("[loss-scale-min]", at + 1) == std::string::npos));
}

TEST_CASE("a checkpoint holds how many overflows the scale still bears", "[precision]") {
  Config config = lively_fp16();
  config.train.loss_scale->hysteresis = 3;
  config.train.max_skipped_steps = 200;
  const TempDir folder;
  const ParallelContext context(config);
  std::int64_t half_used = 0;
  std::int64_t saves = 0;
  const Trained whole = train(config, context, [&](Trainer& trainer, const StepReport& report) {
    const LossScale& scale = *trainer.state().loss_scale;
    if (!report.skipped || scale.hysteresis == 3 || ++half_used % 4 != 1) {
      return;  // some of them are enough
    }
    ++saves;
    const std::filesystem::path at = save(trainer, folder.path() / std::to_string(saves), Comm());
    CHECK(read_state(at).loss_scale == scale);
  });
  REQUIRE(saves >= 2);
  for (std::int64_t k = 1; k <= saves; ++k) {
    INFO("save " << k);
    const std::filesystem::path at =
        list_checkpoints(folder.path() / std::to_string(k)).back().path;
    const Trained rest = finish(*make_trainer(config, context, 6, at));
    REQUIRE(rest.reports.size() < whole.reports.size());
    const std::size_t done = whole.reports.size() - rest.reports.size();
    for (std::size_t i = 0; i < rest.reports.size(); ++i) {
      CHECK(rest.reports[i].loss_scale == whole.reports[done + i].loss_scale);
      CHECK(rest.reports[i].skipped == whole.reports[done + i].skipped);
    }
    check_equal(whole.tensors, rest.tensors);
    CHECK(rest.state.loss_scale == whole.state.loss_scale);
  }
}

TEST_CASE("resume in 16 bits is bit-equal after every step, skipped ones included", "[precision]") {
  std::vector<Config> configs = {in_precision(Precision::bf16), lively_fp16()};
  configs.push_back(split(in_precision(Precision::bf16), 1, 4));
  for (const Config& config : configs) {
    const TempDir folder;
    const ParallelContext context(config);
    const Trained whole = train(config, context, [&](Trainer& trainer, const StepReport&) {
      save(trainer, folder.path(), Comm());
    });
    for (const CheckpointInfo& saved : list_checkpoints(folder.path())) {
      INFO(saved.path.string());
      const RunState state = read_state(saved.path);
      if (state.step == 6) {
        CHECK(state.loss_scale == whole.state.loss_scale);
        continue;
      }
      const std::unique_ptr<Trainer> trainer = make_trainer(config, context, 6, saved.path);
      const Trained rest = finish(*trainer);
      const std::size_t done = whole.reports.size() - rest.reports.size();
      for (std::size_t i = 0; i < rest.reports.size(); ++i) {
        const StepReport& expected = whole.reports[done + i];
        CHECK(rest.reports[i].loss == expected.loss);
        CHECK(rest.reports[i].loss_scale == expected.loss_scale);
        CHECK(rest.reports[i].skipped == expected.skipped);
        CHECK(rest.reports[i].data_hash == expected.data_hash);
      }
      check_equal(whole.tensors, rest.tensors);
      CHECK(rest.state.loss_scale == whole.state.loss_scale);
    }
  }
}

TEST_CASE("the fault inf spoils a gradient, not the loss", "[precision]") {
  ::setenv("COLOSSAL_FAULT", "rank=0,step=2,kind=inf", 1);
  const bool compiled_in = fault::at_step(0, 2) == fault::Poison::gradient;
  const Config config = in_precision(Precision::bf16);
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  std::string text = "none";
  try {
    trainer.run();
  } catch (const Error& error) {
    text = std::string(error.id());
  }
  ::unsetenv("COLOSSAL_FAULT");
  CHECK(text == (compiled_in ? "nonfinite-gradient" : "none"));
}

TEST_CASE("every mode of recomputation trains in 16 bits, bit for bit", "[precision]") {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    Config config = in_precision(precision);
    const Trained expected = trained(config);
    for (const RecomputeMode mode : {RecomputeMode::selective, RecomputeMode::full}) {
      config.train.activation_checkpoint.mode = mode;
      const Trained got = trained(config);
      for (std::size_t i = 0; i < got.reports.size(); ++i) {
        CHECK(got.reports[i].loss == expected.reports[i].loss);
      }
      check_equal(expected.tensors, got.tensors);
    }
  }
}

TEST_CASE("evaluation of few rows works in 16 bits", "[precision]") {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    Config config = tiny_mlp();
    config.eval.at_start = true;
    config.train.precision = Precision::fp32;
    const ParallelContext wide_context(config);
    Trainer wide(build(config, wide_context, {}), {});
    const double expected = wide.evaluate().loss;
    config.train.precision = precision;
    const ParallelContext context(config);
    Trainer trainer(build(config, context, {}), {});
    require_relative(expected, trainer.evaluate().loss, 1e-2, "loss");
  }
}

}  // namespace colossal::test
