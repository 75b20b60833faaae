// Do all ranks skip an update together when the gradient of one of them overflows?
#include "core/fault.hpp"
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <cstdlib>
#include <string>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

Config in_precision(Precision precision) {
  Config config = tiny_gpt();
  config.train.precision = precision;
  config.optimizer.eps = 1e-6;
  if (precision == Precision::fp16) {
    config.train.loss_scale = LossScaleConfig{.init = 1024, .growth_interval = 4, .hysteresis = 1};
  } else {
    config.train.nonfinite = NonFinite::skip;
  }
  return config;
}

/// Fails unless `tensor` is equal on all ranks, bit for bit.
void check_everywhere(const at::Tensor& tensor, RankContext& ctx) {
  const at::Tensor mine = tensor.to(at::kDouble).clone();
  at::Tensor sum = mine.clone();
  ctx.comm().all_reduce(sum).wait();
  CHECK(at::equal(sum, mine.mul(ctx.size())));  // sizes are powers of two
}

/// The last rank's gradient of step 3 is infinite once.
void check_overflow(RankContext& ctx, Precision precision) {
  const std::string fault = fmt::format("rank={},step=3,kind=inf", ctx.size() - 1);
  ::setenv("COLOSSAL_FAULT", fault.c_str(), 1);
  const bool compiled_in = fault::at_step(ctx.size() - 1, 3) == fault::Poison::gradient;
  const Config config = split(in_precision(precision), ctx.size(), 2);
  const ParallelContext context(config, ctx.world());
  Tensors before;
  const Trained run = train(config, context, [&](Trainer& trainer, const StepReport& report) {
    if (report.step == 2) {
      before = copy_records(trainer);
    }
    if (report.skipped) {
      ::unsetenv("COLOSSAL_FAULT");
      CHECK(report.step == 3);
      CHECK(std::isfinite(report.loss));  // the loss of no rank was bad
      for (const auto& [name, tensor] : copy_records(trainer)) {
        INFO(name);
        CHECK(at::equal(before.at(name), tensor));
      }
    }
  });
  ::unsetenv("COLOSSAL_FAULT");
  const std::int64_t skips = compiled_in ? 1 : 0;
  CHECK(run.state.step == 6);
  CHECK(run.state.skipped == skips);
  CHECK(run.state.consumed == (6 + skips) * 16);
  if (precision == Precision::fp16 && compiled_in) {
    // two good steps, the fall, then four good ones: the last of them doubles
    CHECK(run.state.loss_scale == LossScale{1024, 0, 1});
    CHECK(run.reports[3].loss_scale == 512);
  }
  for (const auto& [name, tensor] : run.tensors) {
    INFO(name);
    check_everywhere(tensor, ctx);
  }
}

void check_like_one_process(RankContext& ctx, Precision precision) {
  const Config config = in_precision(precision);
  const Config spread = split(config, ctx.size(), 1);
  const ParallelContext context(spread, ctx.world());
  const Trained run = train(spread, context);
  const ParallelContext alone(config);
  const Trained expected = ctx.rank() == 0 ? train(config, alone) : Trained{};
  for (std::size_t i = 0; i < expected.reports.size(); ++i) {
    require_relative(expected.reports[i].loss, run.reports[i].loss, 2e-3, "loss");
  }
}

}  // namespace

RANKS_TEST_CASE("an overflow of one rank of two is skipped by all, fp16", "[precision]", 2) {
  check_overflow(ctx, Precision::fp16);
}

RANKS_TEST_CASE("an overflow of one rank of four is skipped by all, fp16", "[precision]", 4) {
  check_overflow(ctx, Precision::fp16);
}

RANKS_TEST_CASE("a non-finite gradient of one rank is skipped by all, bf16", "[precision]", 2) {
  check_overflow(ctx, Precision::bf16);
}

RANKS_TEST_CASE("ranks in bf16 follow one process", "[precision]", 2) {
  check_like_one_process(ctx, Precision::bf16);
}

RANKS_TEST_CASE("ranks in fp16 follow one process", "[precision]", 2) {
  check_like_one_process(ctx, Precision::fp16);
}
