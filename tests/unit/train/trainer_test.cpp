// Does the loop learn, stop, skip and evaluate as it promises?
#include "train/trainer.hpp"

#include "core/error.hpp"
#include "core/fault.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>

namespace colossal::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Sets one element of the master of `name`.
void poison(Trainer& trainer, const std::string& name, double value) {
  for (const TensorRecord& record : trainer.records()) {
    if (record.name == "model/" + name) {
      record.local.view({-1})[0].fill_(value);
      return;
    }
  }
  FAIL("no parameter " << name);
}

/// Text of the error that the run ends with; its id comes first.
std::string numeric_failure_of(Trainer& trainer) {
  try {
    trainer.run();
  } catch (const Error& error) {
    CHECK(error.kind() == (error.id() == "no-labels" ? ErrorKind::data : ErrorKind::numerics));
    return std::string(error.id()) + ": " + error.what();
  }
  return "none";
}

/// A data set whose labels are all ignored.
class Unlabelled : public Dataset {
 public:
  explicit Unlabelled(std::shared_ptr<const Dataset> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::int64_t size() const override { return inner_->size(); }
  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    Batch batch = inner_->read(indices);
    at::Tensor& labels = batch.fields["labels"];
    labels = at::full_like(labels, kIgnoreLabel);
    return batch;
  }
  [[nodiscard]] std::string fingerprint() const override { return "unlabelled"; }
  [[nodiscard]] std::string summary() const override { return "unlabelled"; }

 private:
  std::shared_ptr<const Dataset> inner_;
};

}  // namespace

TEST_CASE("a tiny model learns one batch by heart", "[trainer]") {
  Config config = tiny_gpt();
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  config.model.hidden_size = 32;
  config.model.ffn_hidden_size = 128;
  config.model.max_seq_length = 64;
  config.data.seq_length = 64;
  config.data.num_samples = 8;
  config.train.precision = Precision::fp32;
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 8;
  config.train.steps = 300;
  config.train.clip_grad_norm = 1;
  config.optimizer.weight_decay = 0;
  config.scheduler.warmup_steps = 10;
  const ParallelContext context(config);
  const Trained run = train(config, context);
  CHECK(run.reports.front().loss == Approx(std::log(61)).epsilon(0.05));
  CHECK(run.reports.back().loss < 0.05);
}

TEST_CASE("reports say what a step did", "[trainer]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const Trained run = train(config, context);
  REQUIRE(run.reports.size() == 6);
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    const StepReport& report = run.reports[i];
    CHECK(report.step == static_cast<std::int64_t>(i) + 1);
    CHECK(report.tokens == 16 * 12);
    CHECK(report.samples == 16);
    CHECK_FALSE(report.skipped);
    CHECK(report.clipped == (report.grad_norm > config.train.clip_grad_norm));
    CHECK(report.step_seconds >= report.data_seconds);
  }
  CHECK(run.reports[0].lr == Approx(5e-3));
  CHECK(run.reports[1].lr == Approx(1e-2));
  CHECK(run.reports[4].epoch == Approx(1.0));
  CHECK(run.reports[0].data_hash != run.reports[1].data_hash);
  CHECK(run.state.step == 6);
  CHECK(run.state.consumed == 96);
  CHECK(run.state.skipped == 0);
  CHECK_FALSE(run.state.data_fingerprint.empty());
}

TEST_CASE("two runs of one configuration are bit-equal", "[trainer]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const Trained one = train(config, context);
  const Trained two = train(config, context);
  for (const auto& [name, tensor] : one.tensors) {
    INFO(name);
    CHECK(at::equal(tensor, two.tensors.at(name)));
  }
}

TEST_CASE("a non-finite weight stops the run before the update and is named", "[trainer]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  poison(trainer, "blocks.1.norm1.weight", kNaN);
  const Tensors before = copy_records(trainer);
  const std::string text = numeric_failure_of(trainer);
  CHECK(contains(text, "nonfinite-loss: step 1: loss nan"));
  CHECK(contains(text, "'blocks.1.norm1.weight'"));
  CHECK(trainer.state().step == 0);
  const Tensors after = copy_records(trainer);
  CHECK(at::equal(before.at("model/norm.weight"), after.at("model/norm.weight")));
  CHECK(at::equal(before.at("optim/exp_avg/norm.weight"), after.at("optim/exp_avg/norm.weight")));
}

TEST_CASE("a finite loss with a non-finite gradient is told apart", "[trainer]") {
  Config config = tiny_gpt();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  // Gradients are poisoned after backward: the hook point between them and the update is the phase.
  auto& parts = const_cast<TrainerParts&>(trainer.parts());
  parts.phase = [&](std::string_view phase) {
    if (phase == "step 2 update") {
      parts.store->shards()[0].grad[0].fill_(std::numeric_limits<double>::infinity());
    }
  };
  const std::string text = numeric_failure_of(trainer);
  CHECK(contains(text, "nonfinite-gradient: step 2: loss"));
  CHECK(contains(text, "gradient norm inf"));
  CHECK(contains(text, "first non-finite gradient: '"));
  CHECK(trainer.state().step == 1);
}

TEST_CASE("the fault nan spoils the loss of its step", "[trainer]") {
  ::setenv("COLOSSAL_FAULT", "rank=0,step=3,kind=nan", 1);
  const bool compiled_in = fault::at_step(0, 3) == fault::Poison::loss;
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  const std::string text = numeric_failure_of(trainer);
  ::unsetenv("COLOSSAL_FAULT");
  if (compiled_in) {
    CHECK(contains(text, "nonfinite-loss: step 3: loss nan"));
    CHECK(contains(text, "all weights and gradients are finite"));
  } else {
    CHECK(text == "none");
  }
}

TEST_CASE("skipping consumes data, keeps the step and ends after too many", "[trainer]") {
  Config config = tiny_gpt();
  config.train.nonfinite = NonFinite::skip;
  config.train.max_skipped_steps = 2;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  poison(trainer, "blocks.0.mlp.up.bias", kNaN);
  std::vector<StepReport> reports;
  trainer.add_hook(std::make_unique<RecordingHook>(reports));
  const std::string text = numeric_failure_of(trainer);
  CHECK(contains(text, "too-many-skipped: step 1: 3 updates in a row were skipped"));
  CHECK(contains(text, "'blocks.0.mlp.up.bias'"));
  REQUIRE(reports.size() == 2);
  CHECK(reports[1].skipped);
  CHECK(reports[1].step == 1);
  CHECK(reports[1].data_hash != reports[0].data_hash);
  CHECK(trainer.state().step == 0);
  CHECK(trainer.state().skipped == 3);
  CHECK(trainer.state().consumed == 32);
}

TEST_CASE("a run goes on after a skipped update", "[trainer]") {
  Config config = tiny_gpt();
  config.train.nonfinite = NonFinite::skip;
  config.train.max_skipped_steps = 1;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  poison(trainer, "norm.bias", kNaN);
  const Trained run = finish(trainer, [](Trainer& running, const StepReport& report) {
    if (report.skipped) {
      poison(running, "norm.bias", 0);
    }
  });
  CHECK(run.reports.size() == 7);
  CHECK(run.state.step == 6);
  CHECK(run.state.skipped == 1);
  CHECK(run.state.consumed == 7 * 16);
}

TEST_CASE("a batch without labels is a data error", "[trainer]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  TrainerParts parts = build(config, context, {});
  parts.loader.reset();
  parts.train_data = std::make_shared<Unlabelled>(std::move(parts.train_data));
  const LoaderSpec spec{.order = {.global_batch = 16}, .micro_batch = 16, .num_micro_batches = 1};
  parts.loader = std::make_unique<Loader>(*parts.train_data, spec, DataShard{}, LoaderState{});
  Trainer trainer(std::move(parts), {});
  CHECK(contains(numeric_failure_of(trainer), "no-labels: step 1: none of the 16 samples"));
}

TEST_CASE("evaluation is the mean over every labelled token of the set", "[trainer]") {
  const TempDir folder;
  Config config = tiny_text_gpt(folder.path());
  config.eval.micro_batch_size = 5;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  const EvalReport report = trainer.evaluate();
  const Dataset& data = *trainer.parts().eval_data;
  CHECK(report.samples == data.size());
  double sum = 0;
  std::int64_t tokens = 0;
  for (std::int64_t sample = 0; sample < data.size(); ++sample) {
    Batch batch = data.read({&sample, 1});
    batch.training = false;
    sum += trainer.parts().stage->evaluate(batch).loss_sum.item<double>();
    tokens += at::ne(batch.at("labels"), kIgnoreLabel).sum().item<std::int64_t>();
  }
  CHECK(report.tokens == tokens);
  require_relative(sum / static_cast<double>(report.tokens), report.loss, 1e-12, "loss");
  CHECK(trainer.side_seconds() > 0);
}

TEST_CASE("max_batches limits an evaluation and says what it covered", "[trainer]") {
  const TempDir folder;
  Config config = tiny_text_gpt(folder.path());
  config.eval.micro_batch_size = 2;
  config.eval.max_batches = 3;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  const EvalReport report = trainer.evaluate();
  CHECK(report.num_batches == 3);
  CHECK(report.samples == 6);
}

TEST_CASE("evaluation without data is refused", "[trainer]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  try {
    trainer.evaluate();
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "no-eval-data");
  }
}

TEST_CASE("an evaluation set without labels is a data error", "[trainer]") {
  Config config = tiny_gpt();
  config.eval.at_start = true;
  const ParallelContext context(config);
  TrainerParts parts = build(config, context, {});
  parts.eval_data = std::make_shared<Unlabelled>(std::move(parts.eval_data));
  Trainer trainer(std::move(parts), {});
  try {
    trainer.evaluate();
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "no-labels");
  }
}

}  // namespace colossal::test
