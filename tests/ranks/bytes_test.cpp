// Does a rank hold and send what the formulas of ZeRO say, no more and no less? Read from the
// counting allocator and the communicators, and compared with the plan.
#include "memory/device_memory.hpp"
#include "memory/gauge.hpp"
#include "support/policies.hpp"
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/model.hpp"
#include "train/plan_report.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

/// 1.2 million parameters, few tokens: weights and states outweigh all else.
Config heavy_gpt(Precision precision) {
  Config config = tiny_gpt();
  config.model.num_layers = 6;
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 512;
  config.train.precision = precision;
  config.train.global_batch_size = 4;
  config.data.prefetch = 1;
  return config;
}

/// Bytes a parameter that a rank holds between two steps.
double held(RankContext& ctx, Precision precision, std::int64_t stage) {
  Config config = split(heavy_gpt(precision), ctx.size(), 1);
  config.parallel.zero.stage = stage;
  const ParallelContext context(config, ctx.world());
  const std::int64_t before = device_memory().use().current;
  const auto trainer = make_trainer(config, context, 2);
  const double built = static_cast<double>(device_memory().use().current - before);
  return built / static_cast<double>(chunk_elements(*trainer->parts().store));
}

void check_stages(RankContext& ctx) {
  (void)device_memory();
  const auto n = static_cast<double>(ctx.size());
  // bf16 weights and gradients, fp32 master and two moments
  CHECK(held(ctx, Precision::bf16, 0) == Approx(16).epsilon(0.02));
  CHECK(held(ctx, Precision::bf16, 1) == Approx(4 + 12 / n).epsilon(0.02));
  CHECK(held(ctx, Precision::bf16, 2) == Approx(2 + 14 / n).epsilon(0.02));
  CHECK(held(ctx, Precision::bf16, 3) == Approx(16 / n).epsilon(0.02));
  // in fp32 the weights are their own masters
  CHECK(held(ctx, Precision::fp32, 0) == Approx(16).epsilon(0.02));
  CHECK(held(ctx, Precision::fp32, 1) == Approx(8 + 8 / n).epsilon(0.02));
  CHECK(held(ctx, Precision::fp32, 2) == Approx(4 + 12 / n).epsilon(0.02));
  CHECK(held(ctx, Precision::fp32, 3) == Approx(16 / n).epsilon(0.02));
}

/// In fp32, with the padding of chunks.
std::int64_t largest_block_bytes(const Config& config, const ParallelContext& context) {
  std::int64_t largest = 0;
  const ModelParts model = make_model(config, context);
  for (const std::unique_ptr<Block>& block : model.blocks) {
    std::int64_t sum = 0;
    for (const Parameter* parameter : block->parameters()) {
      const std::int64_t own = numel(parameter->spec().padded);
      sum += (own + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
    }
    largest = std::max(largest, 4 * sum);
  }
  return largest;
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
  double all_reduce = 0;  // of gradients, as a share of one copy of all of them
  double reduce_scatter = 0;
  double all_gather = 0;
};

Volumes volumes_of(RankContext& ctx, const Policy& policy) {
  const SizedDevice device;
  Config config = tiny_gpt();
  config.model.tie_embeddings = false;
  config.run.device_memory = kDevice;
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
  const PlanReport plan = make_plan(spread, 0);
  INFO(policy.name);
  CHECK(plan.comm_bytes_per_step == step[0] / kUnit * kUnit + step[1]);
  CHECK(plan.gather_bytes_per_step == step[2]);
  return {.all_reduce = static_cast<double>(step[0] / kUnit * kUnit) / bytes,
          .reduce_scatter = static_cast<double>(step[1]) / bytes,
          .all_gather = static_cast<double>(step[2] * ctx.size()) / bytes};
}

/// What a rank sends in a step by the ring algorithms, in copies of all gradients.
double sent(const Volumes& volumes, int size) {
  const double part = static_cast<double>(size - 1) / size;
  return part * (2 * volumes.all_reduce + volumes.reduce_scatter + volumes.all_gather);
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
  const double n = ctx.size();
  for (const std::int64_t stage : {0, 1, 2}) {  // 2 (N - 1) / N
    CHECK(sent(volumes_of(ctx, zero(stage)), ctx.size()) == Approx(2 * (n - 1) / n));
  }
  CHECK(sent(volumes_of(ctx, zero(3, Offload::none, 0)), ctx.size()) == Approx(3 * (n - 1) / n));
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
  // Gemini cuts gradients and weights as stage 3 does. What has room for all weights gathers them
  // once, a budget that keeps nothing from forward to backward twice, and others between.
  GeminiConfig budget = placed(Placement::constant);
  budget.const_budget = kDevice;
  check_volumes(ctx, gemini("const, room for all", budget), cut);
  check_volumes(ctx, gemini("auto, room for all", placed(Placement::automatic)), cut);
  Policy tight = gemini("const, little room", placed(Placement::constant));
  Config config = tiny_gpt();
  config.model.tie_embeddings = false;
  const std::int64_t slack =
      make_plan(with(split(config, ctx.size(), 1), tight), 0).ranks.front().slack.value();
  for (const std::int64_t more : {std::int64_t{0}, std::int64_t{8} << 10U}) {
    budget.const_budget = placed(Placement::constant).const_budget - slack + more;
    const Volumes some = volumes_of(ctx, gemini("const, little room", budget));
    CHECK(some.all_reduce == Approx(0));
    CHECK(some.reduce_scatter == Approx(1));
    CHECK(some.all_gather > 1);
    CHECK(some.all_gather <= 2);
  }
}

}  // namespace

RANKS_TEST_CASE("1 rank holds all bytes of weights, gradients and states", "[bytes]", 1) {
  check_stages(ctx);
}

RANKS_TEST_CASE("2 ranks hold what the formulas of ZeRO say", "[bytes]", 2) {
  check_stages(ctx);
}

RANKS_TEST_CASE("4 ranks hold what the formulas of ZeRO say", "[bytes]", 4) {
  check_stages(ctx);
}

RANKS_TEST_CASE("stage 3 gathers two blocks and what it is told to prefetch", "[bytes]", 2) {
  (void)device_memory();
  for (const std::int64_t prefetch : {0, 1, 2}) {
    INFO("prefetch " << prefetch);
    Config config = split(heavy_gpt(Precision::fp32), ctx.size(), 1);
    config.parallel.zero.stage = 3;
    config.parallel.zero.prefetch = prefetch;
    const ParallelContext context(config, ctx.world());
    const auto trainer = make_trainer(config, context, 4);
    gauge(MemoryKind::gathered).reset_peak();
    (void)finish(*trainer);
    const std::int64_t block = largest_block_bytes(config, context);
    const std::int64_t peak = gauge(MemoryKind::gathered).use().peak;
    CHECK(peak <= (2 + prefetch) * block);
    CHECK(peak >= block);
  }
}

RANKS_TEST_CASE("2 ranks send what the formulas of ZeRO say", "[bytes]", 2) {
  check_volumes(ctx);
}

RANKS_TEST_CASE("4 ranks send what the formulas of ZeRO say", "[bytes]", 4) {
  check_volumes(ctx);
}
