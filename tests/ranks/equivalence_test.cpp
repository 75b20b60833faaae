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
  return {{"synthetic fp64", tiny_gpt()}, {"text fp64", tiny_text_gpt(folder)}, single, adam, sgd};
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

/// Evaluation of the untrained model on these ranks.
EvalReport evaluate(const Config& config, const ParallelContext& context) {
  Trainer trainer(build(config, context, {}), {});
  return trainer.evaluate();
}

void check_evaluation(RankContext& ctx) {
  const TempDir folder;
  Config config = tiny_text_gpt(folder.path());
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
  }
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
void check_resume_chain(RankContext& ctx) {
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  const Config config = tiny_gpt();
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
  check_evaluation(ctx);
}

RANKS_TEST_CASE("evaluation on 4 processes equals evaluation on one", "[equivalence]", 4) {
  check_evaluation(ctx);
}

RANKS_TEST_CASE("a run moves from 2 processes to 1 and back", "[equivalence]", 2) {
  check_resume_chain(ctx);
}

RANKS_TEST_CASE("a run moves from 4 processes to 1 and back", "[equivalence]", 4) {
  check_resume_chain(ctx);
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
