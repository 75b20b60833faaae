// Does training depend on how it is spread? The layout-equivalence suite (architecture section 9):
// every row must give the losses and weights of one process without accumulation.
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

/// One model of the table and how close its runs must be.
struct Row {
  std::string name;
  Config config;
  double tolerance = 1e-9;
};

std::vector<Row> rows(const std::filesystem::path& folder) {
  Row single{"synthetic fp32", tiny_gpt(), 1e-5};
  single.config.train.precision = Precision::fp32;
  // The key bias has no true gradient: with a small eps Adam would blow its rounding noise up.
  single.config.optimizer.eps = 1e-3;
  Row adam{"adam, wsd", tiny_gpt()};
  adam.config.optimizer.type = OptimizerType::adam;
  adam.config.scheduler.type = SchedulerType::wsd;
  Row sgd{"sgd, one_cycle", tiny_gpt()};
  sgd.config.optimizer.type = OptimizerType::sgd;
  sgd.config.optimizer.nesterov = true;
  sgd.config.scheduler = {};
  sgd.config.scheduler.type = SchedulerType::one_cycle;
  Row padded{"tokens, last batch padded, fp64", tiny_tokens_gpt(folder)};
  padded.config.data.last_batch = LastBatch::pad;
  return {{"synthetic fp64", tiny_gpt()},
          {"text fp64", tiny_text_gpt(folder)},
          {"tokens, packed documents, fp64", tiny_tokens_gpt(folder)},
          {"tokens, weighted files, fp64", tiny_blend_gpt(folder)},
          padded,
          single,
          adam,
          sgd,
          {"mlp fp64", tiny_mlp()}};
}

void check_same_steps(const Trained& reference, const Trained& run, double tolerance) {
  REQUIRE(run.reports.size() == reference.reports.size());
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    const StepReport& expected = reference.reports[i];
    const StepReport& got = run.reports[i];
    INFO("step " << expected.step);
    require_relative(expected.loss, got.loss, tolerance, "loss");
    require_relative(expected.grad_norm, got.grad_norm, tolerance, "gradient norm");
    CHECK(got.lr == expected.lr);
    CHECK(got.data_hash == expected.data_hash);
    CHECK(got.tokens == expected.tokens);
    CHECK(got.samples == expected.samples);
    CHECK(got.clipped == expected.clipped);
  }
}

void check_same_run(const Trained& reference, const Trained& run, double tolerance) {
  check_same_steps(reference, run, tolerance);
  REQUIRE(run.tensors.size() == reference.tensors.size());
  for (const auto& [name, tensor] : reference.tensors) {
    if (name.starts_with("model/")) {
      require_close(tensor, run.tensors.at(name), tolerance, name);
    }
  }
  CHECK(run.state.step == reference.state.step);
  CHECK(run.state.consumed == reference.state.consumed);
}

/// Twelve steps of a warm-up of ten: the rate of a step depends on nothing but its number.
void check_rates(RankContext& ctx) {
  for (const OptimizerType optimizer : {OptimizerType::adam, OptimizerType::sgd}) {
    Config config = tiny_gpt();
    config.model.num_layers = 1;
    config.train.steps = 12;
    config.optimizer.type = optimizer;
    config.scheduler.type = SchedulerType::linear;
    config.scheduler.warmup_steps = 10;
    const Scheduler scheduler(config.scheduler, config.optimizer.lr, 12);
    for (const std::int64_t accumulation : {1, 4}) {
      INFO("accumulation " << accumulation);
      const Config spread = split(config, ctx.size(), accumulation);
      const ParallelContext context(spread, ctx.world());
      const Trained run = train(spread, context);
      REQUIRE(run.reports.size() == 12);
      for (const StepReport& report : run.reports) {
        CHECK(report.lr == scheduler.lr(report.step - 1));
      }
    }
  }
}

/// The run on one process, without any collective; rank 0 compares the others with it.
Trained train_alone(const Config& config) {
  const ParallelContext alone(config);
  return train(config, alone);
}

void check_all_rows(RankContext& ctx) {
  const TempDir folder;
  for (const Row& row : rows(folder.path())) {
    INFO(row.name);
    const Trained reference = ctx.rank() == 0 ? train_alone(row.config) : Trained{};
    for (const std::int64_t accumulation : {1, 2, 4}) {
      INFO("accumulation " << accumulation);
      const Config config = split(row.config, ctx.size(), accumulation);
      const ParallelContext context(config, ctx.world());
      const Trained run = train(config, context);
      if (ctx.rank() == 0) {
        check_same_run(reference, run, row.tolerance);
      }
    }
  }
}

/// What one step does: its report and the gradient that the optimizer got.
struct OneStep {
  StepReport report;
  std::vector<at::Tensor> grads;
};

OneStep one_step(const Config& config, const ParallelContext& context) {
  const std::unique_ptr<Trainer> trainer = make_trainer(config, context, 1);
  OneStep step{finish(*trainer).reports.at(0), {}};
  for (const FlatShard& shard : trainer->parts().store->shards()) {
    step.grads.push_back(shard.grad.clone());
  }
  return step;
}

void check_same_step(const OneStep& expected, const OneStep& got, double tolerance) {
  require_relative(expected.report.loss, got.report.loss, tolerance, "loss");
  require_relative(expected.report.grad_norm, got.report.grad_norm, tolerance, "gradient norm");
  CHECK(got.report.tokens == expected.report.tokens);
  REQUIRE(got.grads.size() == expected.grads.size());
  for (std::size_t i = 0; i < got.grads.size(); ++i) {
    require_close(expected.grads[i], got.grads[i], tolerance, "gradient");
  }
}

/// One document a row, so that every micro-batch has another number of labels.
Config padded_config(const std::filesystem::path& folder, Precision precision) {
  Config config = tiny_tokens_gpt(folder);
  config.data.packing = Packing::pad;
  config.train.precision = precision;
  config.train.global_batch_size = 8;
  config.train.clip_grad_norm = 0;
  return config;
}

/// Evaluation of the untrained model on these ranks.
EvalReport evaluate(const Config& config, const ParallelContext& context) {
  Trainer trainer(build(config, context, {}), {});
  return trainer.evaluate();
}

void check_evaluation(RankContext& ctx, Config (*make_config)(const std::filesystem::path&)) {
  const TempDir folder;
  Config config = make_config(folder.path());
  const ParallelContext alone(config);
  const EvalReport expected = evaluate(config, alone);
  config = split(config, ctx.size(), 1);
  const ParallelContext context(config, ctx.world());
  for (const std::int64_t micro_batch : {1, 3, 16, 100}) {
    INFO("micro batch " << micro_batch);
    config.eval.micro_batch_size = micro_batch;
    const EvalReport report = evaluate(config, context);
    require_relative(expected.loss, report.loss, 1e-12, "evaluation loss");
    CHECK(report.tokens == expected.tokens);
    CHECK(report.samples == expected.samples);
    CHECK(report.accuracy == expected.accuracy);
  }
}

/// tiny_mlp() for those who hand out folders: it needs none.
Config mlp_in(const std::filesystem::path& /*folder*/) {
  Config config = tiny_mlp();
  config.eval.at_end = true;  // synthetic data have an evaluation split for those who evaluate
  return config;
}

/// Two steps after the checkpoint `from` (empty: the start), saved in `root`; their reports are
/// appended to `all`. Returns the new checkpoint.
std::filesystem::path train_leg(const Config& config,
                                const ParallelContext& context,
                                const Comm& world,
                                const std::filesystem::path& from,
                                const std::filesystem::path& root,
                                Trained& all) {
  const std::int64_t begin = from.empty() ? 0 : read_state(from).step;
  const std::unique_ptr<Trainer> trainer = make_trainer(config, context, begin + 2, from);
  Trained leg = finish(*trainer);
  all.reports.insert(all.reports.end(), leg.reports.begin(), leg.reports.end());
  all.tensors = std::move(leg.tensors);
  all.state = leg.state;
  return save(*trainer, root, world);
}

/// All ranks, then rank 0 alone, then all again, each resuming where the others stopped.
void check_resume_chain(RankContext& ctx, Config (*make_config)(const std::filesystem::path&)) {
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  const TempDir files;
  const Config config = make_config(files.path());
  const Config together = split(config, ctx.size(), 2);
  const ParallelContext alone(config);
  const ParallelContext context(together, ctx.world());
  Trained all;
  std::filesystem::path at = train_leg(together, context, ctx.comm(), {}, root, all);
  if (ctx.rank() == 0) {
    at = train_leg(config, alone, Comm(), at, root, all);
  }
  at = ctx.comm().gather_text(at.string()).front();
  train_leg(together, context, ctx.comm(), at, root, all);
  if (ctx.rank() == 0) {
    check_same_run(train_alone(config), all, 1e-9);
  }
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

}  // namespace

RANKS_TEST_CASE("training on 1 process does not depend on accumulation", "[equivalence]", 1) {
  check_all_rows(ctx);
}

RANKS_TEST_CASE("training on 2 processes equals training on one", "[equivalence]", 2) {
  check_all_rows(ctx);
}

RANKS_TEST_CASE("training on 4 processes equals training on one", "[equivalence]", 4) {
  check_all_rows(ctx);
}

RANKS_TEST_CASE("the rate of a step is the same on 1 process", "[equivalence]", 1) {
  check_rates(ctx);
}

RANKS_TEST_CASE("the rate of a step is the same on 2 processes", "[equivalence]", 2) {
  check_rates(ctx);
}

RANKS_TEST_CASE("the rate of a step is the same on 4 processes", "[equivalence]", 4) {
  check_rates(ctx);
}

RANKS_TEST_CASE("evaluation on 2 processes equals evaluation on one", "[equivalence]", 2) {
  check_evaluation(ctx, tiny_text_gpt);
  check_evaluation(ctx, tiny_tokens_gpt);
  check_evaluation(ctx, mlp_in);
}

RANKS_TEST_CASE("evaluation on 4 processes equals evaluation on one", "[equivalence]", 4) {
  check_evaluation(ctx, tiny_text_gpt);
  check_evaluation(ctx, tiny_tokens_gpt);
  check_evaluation(ctx, mlp_in);
}

RANKS_TEST_CASE("a run moves from 2 processes to 1 and back", "[equivalence]", 2) {
  check_resume_chain(ctx, [](const std::filesystem::path& /*folder*/) { return tiny_gpt(); });
  check_resume_chain(ctx, tiny_tokens_gpt);
  check_resume_chain(ctx, tiny_blend_gpt);
  check_resume_chain(ctx, mlp_in);
}

RANKS_TEST_CASE("a run moves from 4 processes to 1 and back", "[equivalence]", 4) {
  check_resume_chain(ctx, [](const std::filesystem::path& /*folder*/) { return tiny_gpt(); });
  check_resume_chain(ctx, tiny_tokens_gpt);
  check_resume_chain(ctx, tiny_blend_gpt);
  check_resume_chain(ctx, mlp_in);
}

RANKS_TEST_CASE("loss and gradient of padded rows do not depend on the split (transformers 34191)",
                "[equivalence]",
                2) {
  const TempDir folder;
  const Config config = split(padded_config(folder.path(), Precision::fp32), 1, 1);
  const OneStep expected = ctx.rank() == 0 ? one_step(config, ParallelContext(config)) : OneStep{};
  for (const std::int64_t accumulation : {1, 2, 8}) {  // micro-batches of 8, 4, 1 on one process
    INFO("accumulation " << accumulation);
    const Config alone = split(config, 1, accumulation);
    if (ctx.rank() == 0) {
      check_same_step(expected, one_step(alone, ParallelContext(alone)), 1e-6);
    }
  }
  for (const std::int64_t accumulation : {1, 4}) {
    const Config two = split(config, 2, accumulation);
    const OneStep got = one_step(two, ParallelContext(two, ctx.world()));
    if (ctx.rank() == 0) {
      check_same_step(expected, got, 1e-6);
    }
  }
}

RANKS_TEST_CASE("the loss shown is that of the whole batch (DeepSpeed 1107)", "[equivalence]", 1) {
  const TempDir folder;
  Config config = padded_config(folder.path(), Precision::fp64);
  config.train.global_batch_size = 64;
  const Config whole = split(config, 1, 1);
  const OneStep expected = one_step(whole, ParallelContext(whole));
  for (const std::int64_t accumulation : {8, 64}) {
    const Config parts = split(config, 1, accumulation);
    check_same_step(expected, one_step(parts, ParallelContext(parts)), 1e-12);
  }
}

RANKS_TEST_CASE("a NaN on one rank stops all ranks before the same update", "[equivalence]", 2) {
  const Config config = split(tiny_gpt(), 2, 1);
  const ParallelContext context(config, ctx.world());
  const std::unique_ptr<Trainer> trainer = make_trainer(config, context, 6);
  if (ctx.rank() == 1) {
    trainer->parts().store->shards()[0].master[0].fill_(std::nan(""));
  }
  try {
    trainer->run();
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.id() == "nonfinite-loss");
    CHECK(trainer->state().step == 0);
  }
}
