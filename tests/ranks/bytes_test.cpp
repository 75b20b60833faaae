// Does a rank hold what the formulas of ZeRO say, no more and no less? Read from the counting
// allocator, not from the plan.
#include "memory/device_memory.hpp"
#include "memory/gauge.hpp"
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/model.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

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
