// Does training depend on where its memory lies? Every memory policy must give the losses and
// weights of one process that holds everything.
#include "support/policies.hpp"

#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

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

/// In five steps, the fourth of which begins an epoch: a longer run shows no more of a policy,
/// and there are 24 of them.
Config brief(Config config) {
  config.train.steps = 5;
  config.data.num_samples = 3 * config.train.global_batch_size;
  return config;
}

/// Under a policy, in chunks twice as long as other tests have them: a run is made of messages
/// between processes, of which there are half as many then, and still of several chunks.
Config coarse(const Config& config, const Policy& policy) {
  constexpr std::int64_t kChunk = 8192;
  Config chosen = with(config, policy);
  if (chosen.parallel.gemini) {
    chosen.parallel.gemini->chunk_size = kChunk;
  } else if (chosen.parallel.zero.bucket_size) {
    chosen.parallel.zero.bucket_size = kChunk;
  }
  return chosen;
}

void check_policies(RankContext& ctx, const Config& config) {
  const SizedDevice device;
  const Trained reference = train(config, ParallelContext(config));
  const ParallelContext context(split(config, ctx.size(), 1), ctx.world());
  for (const Policy& policy : policies()) {
    for (const std::int64_t accumulation : {1, 2}) {
      if (ctx.size() == 4 && accumulation == 1) {
        continue;  // the gate has two cores
      }
      INFO(policy.name << ", accumulation " << accumulation);
      const Config spread = coarse(split(config, ctx.size(), accumulation), policy);
      check_same(reference, train(spread, context), 1e-9);
    }
  }
}

/// Optimizers that see whole parameters, which policies cut into parts, or signs, which show every
/// difference.
void check_layerwise(RankContext& ctx, OptimizerType type, const std::vector<Policy>& under) {
  const SizedDevice device;
  // The gradient of the attention's key bias is zero but for rounding, which these two blow up.
  const bool blows_up = type == OptimizerType::lion || type == OptimizerType::adafactor;
  Config config = brief(blows_up ? tiny_mlp() : tiny_gpt());
  config.optimizer.type = type;
  config.optimizer.lr = type == OptimizerType::lars   ? 1.0
                        : type == OptimizerType::lion ? 1e-3
                                                      : 1e-2;
  config.optimizer.momentum = 0.9;
  const Trained reference = train(config, ParallelContext(config));
  const Config spread = split(config, ctx.size(), 1);
  const ParallelContext context(spread, ctx.world());
  for (const Policy& policy : under) {
    INFO(policy.name);
    check_same(reference, train(coarse(spread, policy), context), 1e-9);
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
  const SizedDevice device;
  const Config spread = split(std::move(config), ctx.size(), accumulation);
  const ParallelContext context(spread, ctx.world());
  const Trained reference = train(spread, context);
  for (const Policy& policy : policies()) {
    INFO(policy.name << ", accumulation " << accumulation);
    const Trained run = train(coarse(spread, policy), context);
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
  Config config = brief(tiny_gpt());
  config.train.precision = precision;
  return config;
}

/// fp16 whose scale starts at `scale` and rises after two good steps.
Config scaled(double scale) {
  Config config = narrow(Precision::fp16);
  config.train.steps = 6;
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
  const SizedDevice device;
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  Config config = tiny_gpt();
  config.train.steps = std::ssize(policies());
  const Trained reference = train(config, ParallelContext(config));
  Trained last;
  std::filesystem::path from;
  std::int64_t step = 0;
  const ParallelContext context(split(config, ctx.size(), 1), ctx.world());
  for (const Policy& policy : policies()) {
    INFO(policy.name);
    const Config spread = coarse(split(config, ctx.size(), 1), policy);
    const std::unique_ptr<Trainer> trainer = make_trainer(spread, context, ++step, from);
    Trained leg = finish(*trainer);
    last.reports.insert(last.reports.end(), leg.reports.begin(), leg.reports.end());
    last.tensors = leg.tensors;
    from = ctx.comm().gather_text(save(*trainer, root, ctx.comm()).string()).front();
  }
  check_same(reference, last, 1e-9);
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

/// Saved under every policy after a step and loaded under every policy for another: all pairs, of
/// which this does every fourth saver, since a case has a minute.
void check_pairs(RankContext& ctx, std::size_t first) {
  const SizedDevice device;
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  Config config = tiny_gpt();
  config.model.num_layers = 1;  // 24^2 pairs
  Trained reference = finish(*make_trainer(config, ParallelContext(config), 2));
  reference.reports.erase(reference.reports.begin());
  const Config spread = split(config, ctx.size(), 1);
  const ParallelContext context(spread, ctx.world());
  const std::vector<Policy> all = policies();
  for (std::size_t saver = first; saver < all.size(); saver += 4) {
    const std::unique_ptr<Trainer> trainer = make_trainer(coarse(spread, all[saver]), context, 1);
    trainer->run();
    const std::filesystem::path folder = root / std::to_string(saver);
    const std::filesystem::path from =
        ctx.comm().gather_text(save(*trainer, folder, ctx.comm()).string()).front();
    for (const Policy& loader : all) {
      INFO("saved under " << all[saver].name << ", loaded under " << loader.name);
      check_same(reference, finish(*make_trainer(coarse(spread, loader), context, 2, from)), 1e-9);
    }
  }
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

}  // namespace

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under the next", "[policies]", 2) {
  check_chain(ctx);
}

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under each other, first quarter",
                "[policies]",
                2) {
  check_pairs(ctx, 0);
}

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under each other, second quarter",
                "[policies]",
                2) {
  check_pairs(ctx, 1);
}

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under each other, third quarter",
                "[policies]",
                2) {
  check_pairs(ctx, 2);
}

RANKS_TEST_CASE("a checkpoint of each memory policy goes on under each other, last quarter",
                "[policies]",
                2) {
  check_pairs(ctx, 3);
}

RANKS_TEST_CASE("every memory policy on 1 process equals stage 0", "[policies]", 1) {
  check_policies(ctx, brief(tiny_gpt()));
  check_policies(ctx, brief(tiny_mlp()));
}

RANKS_TEST_CASE("every memory policy on 2 processes equals one process", "[policies]", 2) {
  check_policies(ctx, brief(tiny_gpt()));
}

RANKS_TEST_CASE("every memory policy on 4 processes equals one process", "[policies]", 4) {
  check_policies(ctx, brief(tiny_gpt()));
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
  check_layerwise(ctx, OptimizerType::lamb, policies());
}

RANKS_TEST_CASE("lars under every memory policy on 2 processes equals one process",
                "[policies]",
                2) {
  check_layerwise(ctx, OptimizerType::lars, policies());
}

RANKS_TEST_CASE("lamb and lars cut over 4 processes equal one process", "[policies]", 4) {
  const std::vector<Policy> cut = {
      zero(1), zero(2, Offload::optimizer), zero(3), gemini("auto", placed(Placement::automatic))};
  check_layerwise(ctx, OptimizerType::lamb, cut);
  check_layerwise(ctx, OptimizerType::lars, cut);
}

RANKS_TEST_CASE("lion under every memory policy on 2 processes equals one process",
                "[policies]",
                2) {
  check_layerwise(ctx, OptimizerType::lion, policies());
}

RANKS_TEST_CASE("adafactor under every memory policy on 2 processes equals one process",
                "[policies]",
                2) {
  check_layerwise(ctx, OptimizerType::adafactor, policies());
}

// Sums of rows are fp64, whose order shows in their last bits.
RANKS_TEST_CASE("adafactor with bf16 weights is the same under every memory policy",
                "[policies]",
                2) {
  const SizedDevice device;
  Config config = split(narrow(Precision::bf16), ctx.size(), 1);
  config.optimizer.type = OptimizerType::adafactor;
  const ParallelContext context(config, ctx.world());
  const Trained reference = train(config, context);
  for (const Policy& policy : policies()) {
    INFO(policy.name);
    check_same(reference, train(coarse(config, policy), context), 1e-6);
  }
}
