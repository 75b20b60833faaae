// Is what a run minimises what its keys say: reduction, smoothing, a growing batch, and an end when
// the loss jumps?
#include "train/objective.hpp"

#include "config/batch_sizes.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/local_model.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

/// Rows with different numbers of labels, four micro-batches of two, nothing random but the data.
Config uneven(const std::filesystem::path& folder) {
  Config config = tiny_tokens_gpt(folder);
  config.data.packing = Packing::pad;
  config.model.init_std = 0.3;  // losses differ from row to row
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  config.train.global_batch_size = 8;
  config.train.clip_grad_norm = 0;
  config.train.steps = 1;
  config.scheduler = {};
  return split(config, 1, 4);
}

/// What one step of `config` reports, and the gradient that its optimizer gets.
struct OneStep {
  StepReport report;
  at::Tensor grad;
};

OneStep one_step(const Config& config) {
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  std::vector<StepReport> reports;
  trainer.add_hook(std::make_unique<RecordingHook>(reports));
  trainer.run();
  return {reports.at(0), trainer.parts().store->shards()[0].grad.clone()};
}

/// Labels and summed loss of each micro-batch of the first step, by evaluation of the first
/// weights.
struct Part {
  std::int64_t labels = 0;
  double loss = 0;
};

std::vector<Part> parts_of_first_step(const Config& config) {
  const ParallelContext context(config);
  const TrainerParts parts = build(config, context, {});
  std::vector<Part> found;
  for (Batch& batch : parts.loader->next().micro_batches) {
    batch.training = false;
    found.push_back({at::ne(batch.at("labels"), kIgnoreLabel).sum().item<std::int64_t>(),
                     parts.stage->evaluate(batch).loss_sum.item<double>()});
  }
  return found;
}

/// Nine steps, five of them on the way from 4 to 16 samples.
Config ramped() {
  Config config = tiny_gpt();
  config.model.num_layers = 1;
  config.train.batch_ramp = BatchRampConfig{.start = 4, .increment = 4, .samples = 30};
  config.train.global_batch_size = 16;
  config.train.micro_batch_size = 2;
  config.train.gradient_accumulation = 8;
  config.train.steps = 9;
  config.data.num_samples = 50;  // epochs end inside of steps
  return config;
}

std::vector<std::int64_t> batch_sizes(const Trained& run) {
  std::vector<std::int64_t> sizes;
  for (const StepReport& report : run.reports) {
    sizes.push_back(report.samples);
  }
  return sizes;
}

/// Multiplies all weights of the head's norm, so that the next loss is far from those before.
void shake(Trainer& trainer) {
  for (const TensorRecord& record : trainer.records()) {
    if (record.name == "model/norm.weight") {
      record.local.mul_(1e4);
    }
  }
}

/// A small run of 106 steps that watches for spikes.
Config watched() {
  Config config = tiny_gpt();
  config.model.num_layers = 1;
  config.train.global_batch_size = config.train.micro_batch_size = 2;
  config.train.steps = 106;
  config.train.loss_spike = 3;
  config.optimizer.lr = 1e-3;
  return config;
}

std::string failure_of(Trainer& trainer) {
  try {
    trainer.run();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::numerics);
    return std::string(error.id()) + ": " + error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("token and micro_batch reduce the losses of a step as their names say", "[objective]") {
  const TempDir folder;
  Config config = uneven(folder.path());
  const std::vector<Part> parts = parts_of_first_step(config);
  REQUIRE(parts.size() == 4);
  double sum = 0;
  double means = 0;
  std::int64_t labels = 0;
  for (const Part& part : parts) {
    sum += part.loss;
    labels += part.labels;
    means += part.loss / static_cast<double>(part.labels);
  }
  const OneStep token = one_step(config);
  require_relative(sum / static_cast<double>(labels), token.report.loss, 1e-12, "token");
  config.train.loss_reduction = LossReduction::micro_batch;
  const OneStep micro = one_step(config);
  require_relative(means / 4, micro.report.loss, 1e-12, "micro_batch");
  CHECK(std::abs(micro.report.loss - token.report.loss) > 1e-4);
  CHECK(micro.report.tokens == token.report.tokens);
}

TEST_CASE("the gradient of micro_batch is the mean of those of its micro-batches", "[objective]") {
  const TempDir folder;
  Config config = uneven(folder.path());
  config.train.loss_reduction = LossReduction::micro_batch;
  const OneStep together = one_step(config);
  at::Tensor mean;
  for (std::int64_t i = 0; i < 4; ++i) {  // the same rows, a step of its own for each micro-batch
    const ParallelContext context(config);
    const TrainerParts parts = build(config, context, {});
    parts.store->begin_gradients();
    std::vector<Batch> batches = parts.loader->next().micro_batches;
    Batch& batch = batches[static_cast<std::size_t>(i)];
    const double labels = at::ne(batch.at("labels"), kIgnoreLabel).sum().item<double>();
    parts.stage->begin_step(1 / labels);
    static_cast<void>(parts.stage->forward(0, batch));
    parts.stage->backward(0, true);
    parts.store->finish_gradients();
    const at::Tensor grad = parts.store->shards()[0].grad.div(4);
    mean = mean.defined() ? mean.add(grad) : grad.clone();
  }
  require_close(mean, together.grad, 1e-12, "gradient");
  config.train.loss_reduction = LossReduction::token;
  CHECK(scaled_distance(mean, one_step(config).grad) > 1e-3);
}

TEST_CASE("micro-batches of equal rows make no difference", "[objective]") {
  Config config = split(tiny_gpt(), 1, 4);
  config.train.steps = 2;
  const ParallelContext context(config);
  const Trained token = train(config, context);
  config.train.loss_reduction = LossReduction::micro_batch;
  const Trained micro = train(config, context);
  require_relative(token.reports[1].loss, micro.reports[1].loss, 1e-12, "loss");
}

TEST_CASE("a micro-batch without labels counts in neither reduction", "[objective]") {
  TrainConfig train;
  CHECK(loss_divisor(LossReduction::token, {.labelled = 12, .micro_batches = 3}) == 12);
  CHECK(loss_divisor(LossReduction::micro_batch, {.labelled = 12, .micro_batches = 3}) == 3);
  train.loss_reduction = LossReduction::micro_batch;
  CHECK(loss_rule(train, 0.5, 4).weight == 0.25);
  CHECK(loss_rule(train, 0.5, 4).factor == 0.125);
  CHECK(loss_rule(train, 0.5, 0).weight == 1);  // of a sum that is 0
  train.loss_reduction = LossReduction::token;
  CHECK(loss_rule(train, 0.5, 4).weight == 1);
  CHECK(loss_rule(train, 0.5, 4).factor == 0.5);
}

TEST_CASE("training smooths labels, evaluation does not", "[objective]") {
  Config config = tiny_gpt();
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  config.train.steps = 1;
  config.scheduler = {};
  config.eval.at_start = true;  // the set exists
  config.train.label_smoothing = 0.2;
  const ParallelContext context(config);
  Batch batch = build(config, context, {}).loader->next().micro_batches.at(0);
  const at::Tensor labels = batch.at("labels").flatten();
  batch.fields.erase("labels");
  const LocalModel model(config);
  const at::Tensor logp = at::log_softmax(model.forward(batch)["logits"].flatten(0, 1), -1);
  const at::Tensor hit = logp.gather(1, labels.unsqueeze(1)).sum();
  const double tokens = 16 * 12;
  const double plain = -hit.item<double>() / tokens;
  const double uniform = -logp.mean(-1).sum().item<double>() / tokens;
  require_relative(
      0.8 * plain + 0.2 * uniform, train(config, context).reports.at(0).loss, 1e-12, "training");
  const double smoothed = Trainer(build(config, context, {}), {}).evaluate().loss;
  config.train.label_smoothing = 0;
  CHECK(smoothed == Trainer(build(config, context, {}), {}).evaluate().loss);
}

TEST_CASE("a ramp takes the steps that it says, and all counters follow", "[objective]") {
  const Config config = ramped();
  const ParallelContext context(config);
  const Trained run = train(config, context);
  // parts of 10 samples each: 4 from 0, 8 from 10 on, 12 from 20 on
  const std::vector<std::int64_t> expected = {4, 4, 4, 8, 12, 16, 16, 16, 16};
  CHECK(batch_sizes(run) == expected);
  CHECK(run.state.consumed == std::accumulate(expected.begin(), expected.end(), std::int64_t{0}));
  const Scheduler scheduler(config.scheduler, config.optimizer.lr, 9);
  for (const StepReport& report : run.reports) {
    CHECK(report.lr == scheduler.lr(report.step - 1));
    CHECK(report.tokens == report.samples * 12);
  }
}

TEST_CASE("a run resumes inside of a ramp bit for bit", "[objective][resume]") {
  const TempDir folder;
  const Config config = ramped();
  const ParallelContext context(config);
  const Trained whole = train(config, context);
  for (const std::int64_t stop : {1, 3, 4, 5, 6}) {
    INFO("stopped after step " << stop);
    const std::unique_ptr<Trainer> first = make_trainer(config, context, stop);
    first->run();
    const std::filesystem::path at = save(*first, folder.path() / std::to_string(stop), Comm());
    const Trained rest = finish(*make_trainer(config, context, 9, at));
    REQUIRE(rest.reports.size() == static_cast<std::size_t>(9 - stop));
    for (std::size_t i = 0; i < rest.reports.size(); ++i) {
      const StepReport& expected = whole.reports[static_cast<std::size_t>(stop) + i];
      CHECK(rest.reports[i].loss == expected.loss);
      CHECK(rest.reports[i].data_hash == expected.data_hash);
      CHECK(rest.reports[i].samples == expected.samples);
    }
    for (const auto& [name, tensor] : whole.tensors) {
      INFO(name);
      CHECK(at::equal(tensor, rest.tensors.at(name)));
    }
  }
}

TEST_CASE("the size of a micro-batch does not change a ramp", "[objective]") {
  Config config = ramped();
  const ParallelContext context(config);
  const Trained small = train(config, context);
  config.train.micro_batch_size = 4;
  config.train.gradient_accumulation = 4;
  const Trained large = train(config, context);
  CHECK(batch_sizes(large) == batch_sizes(small));
  for (std::size_t i = 0; i < small.reports.size(); ++i) {
    CHECK(large.reports[i].data_hash == small.reports[i].data_hash);
    require_relative(small.reports[i].loss, large.reports[i].loss, 1e-9, "loss");
  }
}

TEST_CASE("a skipped update moves a ramp on by its samples", "[objective]") {
  Config config = ramped();
  config.train.nonfinite = NonFinite::skip;
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  auto& parts = const_cast<TrainerParts&>(trainer.parts());
  bool poisoned = false;
  parts.phase = [&](std::string_view phase) {
    if (phase == "step 2 update" && !poisoned) {
      poisoned = true;
      parts.store->shards()[0].grad[0].fill_(std::nan(""));
    }
  };
  const Trained run = finish(trainer);
  CHECK(run.state.skipped == 1);
  CHECK(batch_sizes(run) == std::vector<std::int64_t>({4, 4, 4, 8, 12, 16, 16, 16, 16, 16}));
  CHECK(run.reports[1].skipped);
  CHECK(run.state.step == 9);
}

TEST_CASE("a spike is measured by a full window of losses", "[objective]") {
  std::vector<double> recent;
  for (std::size_t i = 0; i < kSpikeWindow; ++i) {
    CHECK_FALSE(is_spike(recent, 1e9, 2));
    remember_loss(recent, i % 2 == 0 ? 1 : 3);
  }
  CHECK(mean_loss(recent) == 2);
  CHECK_FALSE(is_spike(recent, 4, 2));
  CHECK(is_spike(recent, 4.001, 2));
  remember_loss(recent, 201);
  CHECK(recent.size() == kSpikeWindow);
  CHECK(recent.front() == 3);
  CHECK(mean_loss(recent) == 4);
  CHECK(mean_loss({}) == 0);
}

TEST_CASE("a loss spike stops the run before the update", "[objective]") {
  const Config config = watched();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  Tensors before;
  std::vector<StepReport> reports;
  trainer.add_hook(
      std::make_unique<RecordingHook>(reports, [&](Trainer& running, const StepReport& report) {
        if (report.step == 103) {
          shake(running);
          before = copy_records(running);
        }
      }));
  const std::string text = failure_of(trainer);
  INFO(text);
  CHECK(text.starts_with("loss-spike: step 104: the loss "));
  CHECK(text.find("train.loss_spike 3 times") != std::string::npos);
  CHECK(trainer.state().step == 103);
  for (const auto& [name, tensor] : copy_records(trainer)) {
    INFO(name);
    CHECK(at::equal(tensor, before.at(name)));
  }
}

TEST_CASE("before a hundred losses, or without the key, a spike passes", "[objective]") {
  Config config = watched();
  config.train.steps = 60;
  const auto shaken = [&](const Config& some) {
    const ParallelContext context(some);
    return train(some, context, [](Trainer& running, const StepReport& report) {
      if (report.step == 50) {
        shake(running);
      }
    });
  };
  const Trained early = shaken(config);
  CHECK(early.reports[50].loss > 3 * early.reports[49].loss);  // it was one
  CHECK(early.state.recent_losses.size() == 60);
  config.train.loss_spike.reset();
  CHECK(shaken(config).state.recent_losses.empty());
}

TEST_CASE("the window of losses goes on over a resume", "[objective][resume]") {
  const TempDir folder;
  Config config = watched();
  const ParallelContext context(config);
  const std::unique_ptr<Trainer> first = make_trainer(config, context, 101);
  const Trained begun = finish(*first);
  const std::filesystem::path at = save(*first, folder.path(), Comm());
  CHECK(read_state(at).recent_losses == begun.state.recent_losses);
  REQUIRE(begun.state.recent_losses.size() == kSpikeWindow);
  CHECK(begun.state.recent_losses.back() == begun.reports.back().loss);
  const std::unique_ptr<Trainer> second = make_trainer(config, context, 106, at);
  shake(*second);  // the first resumed step is watched already
  CHECK(failure_of(*second).starts_with("loss-spike: step 102:"));
  config.train.loss_spike.reset();
  CHECK(make_trainer(config, context, 106, at)->state().recent_losses.empty());
}

}  // namespace colossal::test
