// Do all ranks skip an update together when the gradient of one of them overflows, and name the
// same weight when one of them holds a bad number?
#include "core/fault.hpp"
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

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

using Choice = std::function<void(ParallelConfig&)>;

Choice zero(std::int64_t stage) {
  return [stage](ParallelConfig& parallel) {
    parallel.zero.stage = stage;
    parallel.zero.bucket_size = 4096;
  };
}

Choice gemini_cpu() {
  return [](ParallelConfig& parallel) {
    parallel.gemini.emplace();
    parallel.gemini->placement = Placement::cpu;
    parallel.gemini->chunk_size = 4096;
  };
}

/// Fails unless `tensor` is equal on all ranks, bit for bit.
void check_everywhere(const at::Tensor& tensor, RankContext& ctx) {
  const at::Tensor mine = tensor.to(at::kDouble).clone();
  at::Tensor sum = mine.clone();
  ctx.comm().all_reduce(sum).wait();
  CHECK(at::equal(sum, mine.mul(ctx.size())));  // sizes are powers of two
}

/// The last rank's gradient of step 3 is infinite once.
void check_overflow(RankContext& ctx, Precision precision, const Choice& choose = zero(0)) {
  const std::string fault = fmt::format("rank={},step=3,kind=inf", ctx.size() - 1);
  ::setenv("COLOSSAL_FAULT", fault.c_str(), 1);
  const bool compiled_in = fault::at_step(ctx.size() - 1, 3) == fault::Poison::gradient;
  Config config = split(in_precision(precision), ctx.size(), 2);
  choose(config.parallel);
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

/// Puts a NaN into the last weight that the last rank holds a part of, there only; returns its name
/// on all ranks.
std::string poison(Trainer& trainer, RankContext& ctx) {
  ChunkStore& store = *trainer.parts().store;
  std::string name;
  if (ctx.rank() == ctx.size() - 1) {
    FlatShard* held = nullptr;
    for (FlatShard& shard : store.shards()) {
      held = shard.segments.empty() ? held : &shard;
    }
    REQUIRE(held != nullptr);
    const Segment& segment = held->segments.back();
    held->master.narrow(0, segment.offset, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    name = store.parameters()[static_cast<std::size_t>(segment.param)]->spec().name;
  }
  store.publish_masters();
  return ctx.comm().gather_text(name).back();
}

/// All ranks end with the text of the one that holds the bad number.
void check_named(RankContext& ctx, Precision precision, std::int64_t stage) {
  Config config = split(in_precision(precision), ctx.size(), 1);
  config.train.nonfinite = NonFinite::stop;
  config.train.max_skipped_steps = 0;
  zero(stage)(config.parallel);
  const ParallelContext context(config, ctx.world());
  Trainer trainer(build(config, context, {}), {});
  std::vector<StepReport> reports;
  std::string name;
  trainer.add_hook(
      std::make_unique<RecordingHook>(reports, [&](Trainer& running, const StepReport& report) {
        name = report.step == 2 ? poison(running, ctx) : name;
      }));
  std::string told;
  try {
    (void)trainer.run();
  } catch (const Error& error) {
    CHECK(error.id() == (precision == Precision::fp16 ? "too-many-skipped" : "nonfinite-loss"));
    told = error.what();
  }
  INFO("stage " << stage << ": " << told);
  REQUIRE_FALSE(name.empty());
  CHECK(reports.size() == 2);
  CHECK_THAT(told, Catch::Matchers::Contains("step 3: "));
  CHECK_THAT(told, Catch::Matchers::Contains("the weights of '" + name + "' are not finite"));
  for (const std::string& of_rank : ctx.comm().gather_text(told)) {
    CHECK(of_rank == told);
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

RANKS_TEST_CASE("an overflow is skipped by all, wherever gradients lie", "[precision]", 2) {
  for (const Choice& choose : {zero(1), zero(2), zero(3), gemini_cpu()}) {
    check_overflow(ctx, Precision::fp16, choose);
    check_overflow(ctx, Precision::bf16, choose);
  }
}

RANKS_TEST_CASE("a bad weight that one rank holds is named by all ranks", "[precision]", 2) {
  for (const std::int64_t stage : {1, 2, 3}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      check_named(ctx, precision, stage);
    }
  }
}
