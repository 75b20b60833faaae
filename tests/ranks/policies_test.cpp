// Does training depend on where its memory lies? Every memory policy must give the losses and
// weights of one process that holds everything.
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

/// A memory policy and how to ask for it.
struct Policy {
  std::string name;
  std::function<void(ParallelConfig&)> choose;
};

Policy zero(std::int64_t stage, Offload offload = Offload::none, std::int64_t prefetch = 2) {
  return {"zero " + std::to_string(stage) + " offload " +
              std::to_string(static_cast<int>(offload)) + " prefetch " + std::to_string(prefetch),
          [=](ParallelConfig& parallel) {
            parallel.zero.stage = stage;
            parallel.zero.offload = offload;
            parallel.zero.prefetch = prefetch;
            parallel.zero.bucket_size = 4096;
          }};
}

Policy gemini(std::string name, const GeminiConfig& config) {
  return {"gemini " + name, [config](ParallelConfig& parallel) {
            parallel.gemini = config;
            parallel.gemini->chunk_size = 4096;
          }};
}

GeminiConfig placed(Placement placement) {
  GeminiConfig config;
  config.placement = placement;
  config.const_budget = 48 << 10;
  return config;
}

GeminiConfig fractions(double shard_param, double offload_optim, double offload_param) {
  GeminiConfig config = placed(Placement::fixed);
  config.shard_param_frac = shard_param;
  config.offload_optim_frac = offload_optim;
  config.offload_param_frac = offload_param;
  return config;
}

GeminiConfig on_disk(double fraction) {
  GeminiConfig config = placed(Placement::cpu);
  config.nvme =
      NvmeConfig{.path = std::filesystem::temp_directory_path().string(), .fraction = fraction};
  return config;
}

std::vector<Policy> policies() {
  return {zero(0),
          zero(0, Offload::optimizer),
          zero(1),
          zero(1, Offload::optimizer),
          zero(2),
          zero(2, Offload::optimizer),
          zero(3),
          zero(3, Offload::none, 0),
          zero(3, Offload::optimizer, 1),
          zero(3, Offload::optimizer_params),
          {"zero 3 without overlap",
           [](ParallelConfig& parallel) {
             parallel.zero.stage = 3;
             parallel.zero.overlap = false;
           }},
          gemini("static 0 0 0", fractions(0, 0, 0)),
          gemini("static 0 .5 0", fractions(0, 0.5, 0)),
          gemini("static .5 .5 0", fractions(0.5, 0.5, 0)),
          gemini("static 1 1 .5", fractions(1, 1, 0.5)),
          gemini("cuda", placed(Placement::cuda)),
          gemini("cpu", placed(Placement::cpu)),
          gemini("const", placed(Placement::constant)),
          gemini("half of the states on disk", on_disk(0.5)),
          gemini("all states on disk", on_disk(1))};
}

Config with(Config config, const Policy& policy) {
  policy.choose(config.parallel);
  return config;
}

void check_same(const Trained& reference, const Trained& run, double tolerance) {
  REQUIRE(run.reports.size() == reference.reports.size());
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    require_relative(reference.reports[i].loss, run.reports[i].loss, tolerance, "loss");
    require_relative(
        reference.reports[i].grad_norm, run.reports[i].grad_norm, tolerance, "gradient norm");
  }
  REQUIRE(run.tensors.size() == reference.tensors.size());
  for (const auto& [name, tensor] : reference.tensors) {
    require_close(tensor, run.tensors.at(name), tolerance, name);
  }
}

void check_policies(RankContext& ctx, const Config& config) {
  const Trained reference = train(config, ParallelContext(config));
  for (const Policy& policy : policies()) {
    for (const std::int64_t accumulation : {1, 2}) {
      if (ctx.size() == 4 && accumulation == 1) {
        continue;  // the gate has two cores
      }
      INFO(policy.name << ", accumulation " << accumulation);
      const Config spread = with(split(config, ctx.size(), accumulation), policy);
      const ParallelContext context(spread, ctx.world());
      check_same(reference, train(spread, context), 1e-9);
    }
  }
}

/// Optimizers whose rates are norms of whole parameters, which policies cut into parts.
void check_layerwise(RankContext& ctx, OptimizerType type) {
  Config config = tiny_gpt();
  config.optimizer.type = type;
  config.optimizer.lr = type == OptimizerType::lars ? 1.0 : 1e-2;
  config.optimizer.momentum = 0.9;
  const Trained reference = train(config, ParallelContext(config));
  const Config spread = split(config, ctx.size(), 1);
  const ParallelContext context(spread, ctx.world());
  for (const Policy& policy : policies()) {
    INFO(policy.name);
    check_same(reference, train(with(spread, policy), context), 1e-9);
  }
}

/// In a narrow precision the order of sums shows. Two ranks add two numbers, in whatever order, so
/// every policy is bit-equal to stage 0 on as many ranks, moves of the loss scale included. With
/// several micro-batches the stages that cut gradients sum over ranks first and over micro-batches
/// then, the others the other way round. In 16 bits the last digits of such sums, which are fp32,
/// decide to which neighbour a weight is rounded. Returns the number of skipped steps.
std::int64_t check_bits(RankContext& ctx,
                        Config config,
                        std::int64_t accumulation,
                        double tolerance) {
  const Config spread = split(std::move(config), ctx.size(), accumulation);
  const ParallelContext context(spread, ctx.world());
  const Trained reference = train(spread, context);
  for (const Policy& policy : policies()) {
    INFO(policy.name << ", accumulation " << accumulation);
    const Trained run = train(with(spread, policy), context);
    REQUIRE(run.reports.size() == reference.reports.size());
    for (std::size_t i = 0; i < run.reports.size(); ++i) {
      require_relative(reference.reports[i].loss, run.reports[i].loss, tolerance, "loss");
      CHECK(run.reports[i].loss_scale == reference.reports[i].loss_scale);
      CHECK(run.reports[i].skipped == reference.reports[i].skipped);
    }
    CHECK(run.state.loss_scale == reference.state.loss_scale);
    CHECK(run.state.skipped == reference.state.skipped);
    for (const auto& [name, tensor] : reference.tensors) {
      INFO(name);
      CHECK((accumulation > 1 || at::equal(tensor, run.tensors.at(name))));
    }
  }
  return reference.state.skipped;
}

Config narrow(Precision precision) {
  Config config = tiny_gpt();
  config.train.precision = precision;
  return config;
}

/// fp16 whose scale starts at `scale` and rises after two good steps.
Config scaled(double scale) {
  Config config = narrow(Precision::fp16);
  config.train.loss_scale =
      LossScaleConfig{.init = scale, .growth_interval = 2, .max = 0x1p30, .hysteresis = 1};
  return config;
}

/// A tied weight has gradients from both of its ends; under stage 1 each rank updates a part of it.
void check_tied(RankContext& ctx) {
  Config config = tiny_gpt();
  config.model.tie_embeddings = true;
  config.train.steps = 50;
  const Config spread = with(split(config, ctx.size(), 1), zero(1));
  const ParallelContext context(spread, ctx.world());
  const Trained run = train(spread, context);
  CHECK_FALSE(run.tensors.contains("model/head.weight"));  // one weight, nothing that could drift
  check_same(train(config, ParallelContext(config)), run, 1e-9);
}

/// Saved under one policy and loaded under the next, all around; bit-equal to a run that never
/// stopped where the order of sums cannot show (fp64, whole comparison to 1e-9).
void check_chain(RankContext& ctx) {
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  Config config = tiny_gpt();
  config.train.steps = std::ssize(policies());
  const Trained reference = train(config, ParallelContext(config));
  Trained last;
  std::filesystem::path from;
  std::int64_t step = 0;
  for (const Policy& policy : policies()) {
    INFO(policy.name);
    const Config spread = with(split(config, ctx.size(), 1), policy);
    const ParallelContext context(spread, ctx.world());
    const std::unique_ptr<Trainer> trainer = make_trainer(spread, context, ++step, from);
    Trained leg = finish(*trainer);
    last.reports.insert(last.reports.end(), leg.reports.begin(), leg.reports.end());
    last.tensors = leg.tensors;
    from = ctx.comm().gather_text(save(*trainer, root, ctx.comm()).string()).front();
  }
  check_same(reference, last, 1e-9);
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

std::int64_t counted(const ParallelContext& context, std::string_view label) {
  for (const CommCounter& counter : context.comm(data_axes()).counters()) {
    if (counter.label == label) {
      return counter.bytes;
    }
  }
  return 0;
}

/// What the collectives of one step were handed, in bytes of all chunks: of reductions whole ones,
/// of gathers the parts of all ranks together.
struct Volumes {
  double all_reduce = 0;
  double reduce_scatter = 0;
  double all_gather = 0;
};

Volumes volumes_of(RankContext& ctx, const Policy& policy) {
  Config config = tiny_gpt();
  config.model.tie_embeddings = false;
  const Config spread = with(split(config, ctx.size(), 1), policy);
  const ParallelContext context(spread, ctx.world());
  const std::array<std::string_view, 3> labels = {"all_reduce", "reduce_scatter", "all_gather"};
  std::array<std::int64_t, 3> before = {};
  std::array<std::int64_t, 3> step = {};
  const auto trainer = make_trainer(spread, context, 3);
  std::int64_t whole = 0;
  for (const ChunkSpec& chunk : trainer->parts().store->plan().chunks) {
    whole += chunk.numel * 8;
  }
  finish(*trainer, [&](Trainer&, const StepReport& /*report*/) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const std::int64_t now = counted(context, labels[i]);
      step[i] = now - before[i];
      before[i] = now;
    }
  });
  // Beside gradients a step reduces a few counts, the loss and the norm: together less than the
  // length of which chunks are multiples.
  constexpr std::int64_t kUnit = kChunkAlignment * 8;
  const auto bytes = static_cast<double>(whole);
  return {.all_reduce = static_cast<double>(step[0] / kUnit * kUnit) / bytes,
          .reduce_scatter = static_cast<double>(step[1]) / bytes,
          .all_gather = static_cast<double>(step[2] * ctx.size()) / bytes};
}

/// Each collective has its own share: in a ring a reduction and a gather cost the same, so that
/// their sum would not tell one from the other.
void check_volumes(RankContext& ctx, const Policy& policy, const Volumes& expected) {
  const Volumes volumes = volumes_of(ctx, policy);
  INFO(policy.name);
  CHECK(volumes.all_reduce == Approx(expected.all_reduce));
  CHECK(volumes.reduce_scatter == Approx(expected.reduce_scatter));
  CHECK(volumes.all_gather == Approx(expected.all_gather));
}

void check_volumes(RankContext& ctx) {
  const Volumes cut = {.all_reduce = 0, .reduce_scatter = 1, .all_gather = 1};
  check_volumes(ctx, zero(0), {.all_reduce = 1, .reduce_scatter = 0, .all_gather = 0});
  check_volumes(ctx, zero(1), cut);
  check_volumes(ctx, zero(2), cut);
  check_volumes(
      ctx, zero(3, Offload::none, 0), {.all_reduce = 0, .reduce_scatter = 1, .all_gather = 2});
  const Volumes kept =
      volumes_of(ctx, zero(3, Offload::none, 2));  // the last block's, for backward
  CHECK(kept.all_reduce == Approx(0));
  CHECK(kept.reduce_scatter == Approx(1));
  CHECK(kept.all_gather > 1);
  CHECK(kept.all_gather < 2);
}

}  // namespace

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under the next", "[policies]", 2) {
  check_chain(ctx);
}

RANKS_TEST_CASE("2 ranks send what the formulas of ZeRO say", "[policies]", 2) {
  check_volumes(ctx);
}

RANKS_TEST_CASE("4 ranks send what the formulas of ZeRO say", "[policies]", 4) {
  check_volumes(ctx);
}

RANKS_TEST_CASE("every memory policy on 1 process equals stage 0", "[policies]", 1) {
  check_policies(ctx, tiny_gpt());
  check_policies(ctx, tiny_mlp());
}

RANKS_TEST_CASE("every memory policy on 2 processes equals one process", "[policies]", 2) {
  check_policies(ctx, tiny_gpt());
}

RANKS_TEST_CASE("every memory policy on 4 processes equals one process", "[policies]", 4) {
  check_policies(ctx, tiny_gpt());
}

RANKS_TEST_CASE("in fp32 every memory policy on 2 processes is bit-equal to stage 0",
                "[policies]",
                2) {
  (void)check_bits(ctx, narrow(Precision::fp32), 1, 0);
  (void)check_bits(ctx, narrow(Precision::fp32), 2, 0);
}

RANKS_TEST_CASE("in bf16 every memory policy on 2 processes is bit-equal to stage 0",
                "[policies]",
                2) {
  (void)check_bits(ctx, narrow(Precision::bf16), 1, 0);
  (void)check_bits(ctx, narrow(Precision::bf16), 2, 0x1p-9);  // one rounding of the loss
}

RANKS_TEST_CASE("in fp16 every memory policy on 2 processes is bit-equal to stage 0",
                "[policies]",
                2) {
  CHECK(check_bits(ctx, scaled(0x1p26), 1, 0) > 0);
  CHECK(check_bits(ctx, scaled(1024), 2, 0x1p-12) == 0);
}

RANKS_TEST_CASE("a tied embedding cut by stage 1 trains as on one process", "[policies]", 2) {
  check_tied(ctx);
}

RANKS_TEST_CASE("lamb under every memory policy on 2 processes equals one process",
                "[policies]",
                2) {
  check_layerwise(ctx, OptimizerType::lamb);
}

RANKS_TEST_CASE("lars under every memory policy on 2 processes equals one process",
                "[policies]",
                2) {
  check_layerwise(ctx, OptimizerType::lars);
}
