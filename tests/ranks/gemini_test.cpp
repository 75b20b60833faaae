// Does placement auto find its own budget, use what is free, and run models far larger than the
// device? And does a checkpoint of such a model stay as small in memory?
#include "memory/device_memory.hpp"
#include "memory/host_memory.hpp"
#include "support/close.hpp"
#include "support/ranks.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::int64_t kMebi = 1 << 20;

Config with_auto(Config config, std::int64_t chunk_bytes) {
  config.parallel.gemini.emplace();
  config.parallel.gemini->placement = Placement::automatic;
  config.parallel.gemini->chunk_size = chunk_bytes;
  return config;
}

/// 24 blocks of 12 * 128^2 weights: in fp64 38 MB, and three times that of other state.
Config deep_gpt() {
  Config config = tiny_gpt();
  config.model.num_layers = 24;
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 512;
  config.train.global_batch_size = 2;
  return config;
}

int on_device(const ChunkStore& store) {
  int count = 0;
  for (const ChunkSpec& chunk : store.plan().chunks) {
    count += chunk.optim_home == Tier::device ? 1 : 0;
  }
  return count;
}

void check_same(const Trained& reference, const Trained& run, double tolerance = 1e-9) {
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    require_relative(reference.reports[i].loss, run.reports[i].loss, tolerance, "loss");
  }
  for (const auto& [name, tensor] : reference.tensors) {
    require_close(tensor, run.tensors.at(name), tolerance, name);
  }
}

/// Weights, gradients and Adam's two states in fp64.
std::int64_t state_bytes(const ChunkStore& store) {
  return chunk_elements(store) * 8 * 4;
}

void check_deep(RankContext& ctx) {
  (void)device_memory();
  const Config config = split(deep_gpt(), ctx.size(), 2 / ctx.size());
  const ParallelContext context(config, ctx.world());
  std::int64_t limit = 0;
  Trained reference;
  {
    const auto whole = make_trainer(config, context, 4);
    limit = state_bytes(*whole->parts().store) / 8;
    reference = finish(*whole);
  }
  for (auto& [name, tensor] : reference.tensors) {
    at::Tensor kept = host_empty(tensor.numel(), tensor.scalar_type()).view(tensor.sizes());
    tensor = kept.copy_(tensor);
  }
  device_memory().set_limit(limit);
  device_memory().reset_peak();
  const auto trainer = make_trainer(with_auto(config, 64 << 10), context, 4);
  Trained run;
  trainer->add_hook(std::make_unique<RecordingHook>(run.reports));
  run.state = trainer->run();
  CHECK(device_memory().use().peak <= limit);
  device_memory().set_limit({});
  run.tensors = copy_records(*trainer);
  check_same(reference, run);
}

/// By how many bytes the memory of tensors - of the device and of the host - grew at most while
/// `work` ran.
std::int64_t growth(const std::function<void()>& work) {
  const std::int64_t before = device_memory().use().current + gauge(MemoryKind::host).use().current;
  device_memory().reset_peak();
  gauge(MemoryKind::host).reset_peak();
  work();
  return device_memory().use().peak + gauge(MemoryKind::host).use().peak - before;
}

std::int64_t largest_tensor_bytes(const ChunkStore& store) {
  std::int64_t largest = 0;
  for (const Parameter* parameter : store.parameters()) {
    std::int64_t numel = 1;
    for (const std::int64_t extent : parameter->spec().shape) {
      numel *= extent;
    }
    largest = std::max(largest, 8 * numel);
  }
  return largest;
}

/// Saving and loading go tensor by tensor: nothing is gathered whole.
void check_streams(RankContext& ctx, const Config& config) {
  (void)device_memory();
  const ParallelContext context(config, ctx.world());
  const TempDir mine;
  const std::filesystem::path root = ctx.comm().gather_text(mine.path().string()).front();
  const auto trainer = make_trainer(config, context, 1);
  (void)finish(*trainer);
  const std::int64_t most = 2 * largest_tensor_bytes(*trainer->parts().store);
  REQUIRE(state_bytes(*trainer->parts().store) > 50 * most);
  CHECK(growth([&] { (void)save(*trainer, root, ctx.comm()); }) < most);
  const std::filesystem::path from =
      ctx.comm().gather_text(list_checkpoints(root).back().path.string()).front();
  std::vector<TensorRecord> records = trainer->records();
  CHECK(growth([&] { load_tensors(from, records, ctx.comm()); }) < most);
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

/// The losses must be those of the same run without any offload, to `tolerance`.
void check_roomy(RankContext& ctx, Precision precision, double tolerance) {
  (void)device_memory();
  Config config = split(tiny_gpt(), ctx.size(), 1);
  config.train.precision = precision;
  const ParallelContext context(config, ctx.world());
  const Trained reference = train(config, context);
  device_memory().set_limit(256 * kMebi);
  const std::int64_t host_before = gauge(MemoryKind::host).use().current;
  const auto trainer = make_trainer(with_auto(config, 4096), context, 6);
  const ChunkStore& store = *trainer->parts().store;
  CHECK(on_device(store) == 0);
  CHECK(gauge(MemoryKind::host).use().current > host_before);
  std::vector<StoreCounters> counters;
  const Trained run = finish(*trainer, [&](Trainer&, const StepReport& /*report*/) {
    CHECK(on_device(store) == std::ssize(store.plan().chunks));
    counters.push_back(store.counters());
  });
  device_memory().set_limit({});
  check_same(reference, run, tolerance);
  // The first step drops every chunk after each block; then all stay from forward to backward, and
  // what a rank holds whole is never gathered.
  CHECK(counters.front().gathers > std::ssize(store.plan().chunks));
  CHECK(counters.back().gathers == (ctx.size() == 1 ? 0 : std::ssize(store.plan().chunks)));
  // Nothing is left on the host, and nothing goes there or comes from there.
  CHECK(counters.front().crossed_bytes > 0);
  CHECK(counters.back().crossed_bytes == 0);
  CHECK(gauge(MemoryKind::host).use().current == host_before);
}

/// Twelve blocks that a prefetch of eight would nearly hold at once, in 16 bits.
Config ahead_gpt(Precision precision) {
  Config config = tiny_gpt();
  config.model.num_layers = 12;
  config.model.hidden_size = 64;
  config.model.ffn_hidden_size = 256;
  config.model.dropout = config.model.attention_dropout = 0;
  config.train.precision = precision;
  config.train.global_batch_size = 8;
  config.parallel.zero.prefetch = 8;
  return with_auto(split(config, 1, 8), 32 << 10);
}

/// Trains beside a device of 1000 KiB; returns which steps were skipped.
std::vector<bool> train_tight(RankContext& ctx, const Config& config) {
  const ParallelContext context(config, ctx.world());
  device_memory().set_limit(device_memory().use().current + (std::int64_t{1000} << 10));
  const auto trainer = make_trainer(config, context, 6);
  std::vector<StepReport> reports;
  trainer->add_hook(std::make_unique<RecordingHook>(reports));
  CHECK_NOTHROW(trainer->run());
  device_memory().set_limit({});
  CHECK(on_device(*trainer->parts().store) > 0);
  std::vector<bool> skipped;
  for (const StepReport& report : reports) {
    skipped.push_back(report.skipped);
  }
  return skipped;
}

/// What the store counted in each step, on a device that cannot hold all of its state.
std::vector<StoreCounters> counters_of(RankContext& ctx, const Config& config, std::int64_t steps) {
  const ParallelContext context(config, ctx.world());
  const auto trainer = make_trainer(config, context, steps);
  const ChunkStore& store = *trainer->parts().store;
  const std::int64_t limit = device_memory().use().current + 4 * chunk_elements(store);
  device_memory().set_limit(limit + 2 * kMebi);
  std::vector<StepReport> reports;
  std::vector<StoreCounters> counters;
  trainer->add_hook(std::make_unique<RecordingHook>(
      reports,
      [&](Trainer&, const StepReport& /*report*/) { counters.push_back(store.counters()); }));
  trainer->run();
  device_memory().set_limit({});
  return counters;
}

}  // namespace

RANKS_TEST_CASE("auto does not gather ahead in steps that are longer than the measured one",
                "[gemini]",
                1) {
  Config config = ahead_gpt(Precision::bf16);
  config.train.batch_ramp = BatchRampConfig{.start = 1, .increment = 1, .samples = 8};
  CHECK(train_tight(ctx, config) == std::vector<bool>(6, false));
}

RANKS_TEST_CASE("auto decides after the first step that is not skipped, from that step's peaks",
                "[gemini]",
                1) {
  Config config = ahead_gpt(Precision::fp16);
  config.train.loss_scale = {.init = 0x1p40, .backoff = 0x1p-15, .max = 0x1p40, .hysteresis = 1};
  const std::vector<bool> skips = {true, true, false, false, false, false, false, false};
  CHECK(train_tight(ctx, config) == skips);
  config.train.batch_ramp = BatchRampConfig{.start = 1, .increment = 1, .samples = 8};
  CHECK(train_tight(ctx, config) == skips);
}

RANKS_TEST_CASE("auto measures again when steps of another length last", "[gemini]", 2) {
  Config config = ahead_gpt(Precision::fp64);
  config.parallel.zero.prefetch = 2;
  config = split(std::move(config), ctx.size(), 4);
  const std::vector<StoreCounters> even = counters_of(ctx, config, 8);
  REQUIRE(even.front().gathers > even.back().gathers);
  // From the fifth step on there are 4 micro-batches each; the third of these steps is measured.
  config.train.batch_ramp = BatchRampConfig{.start = 2, .increment = 2, .samples = 12};
  const std::vector<StoreCounters> grown = counters_of(ctx, config, 10);
  CHECK(grown[6].gathers == even.front().gathers);
  CHECK(grown[7].gathers == even.back().gathers);
  CHECK(grown.back().gathers == even.back().gathers);
}

RANKS_TEST_CASE("checkpoints of cut and of moved states are streamed", "[gemini]", 2) {
  Config config = split(deep_gpt(), ctx.size(), 1);
  config.parallel.zero.stage = 3;
  check_streams(ctx, config);
  config.parallel.zero = {};
  config.parallel.gemini.emplace();
  config.parallel.gemini->placement = Placement::cpu;
  config.parallel.gemini->chunk_size = 64 << 10;
  check_streams(ctx, config);
}

RANKS_TEST_CASE("auto keeps optimizers on a device that has room, and moves them after one step",
                "[gemini]",
                2) {
  check_roomy(ctx, Precision::fp64, 1e-9);
}

RANKS_TEST_CASE("auto on 4 processes does the same", "[gemini]", 4) {
  check_roomy(ctx, Precision::fp64, 1e-9);
}

RANKS_TEST_CASE("auto on 1 process that has room holds all weights, once, and gathers none",
                "[gemini]",
                1) {
  check_roomy(ctx, Precision::fp64, 1e-9);
  check_roomy(ctx, Precision::bf16, 1e-9);
}

RANKS_TEST_CASE("auto moves the homes of 16-bit weights as well", "[gemini]", 2) {
  check_roomy(ctx, Precision::bf16, 1e-6);
}

RANKS_TEST_CASE("auto trains a model whose state is 8 times the device", "[gemini]", 1) {
  check_deep(ctx);
}

RANKS_TEST_CASE("auto on 2 processes trains a model whose state is 8 times each device",
                "[gemini]",
                2) {
  check_deep(ctx);
}

RANKS_TEST_CASE("ranks that would decide otherwise stop with an error, not with a hang",
                "[gemini]",
                2) {
  (void)device_memory();
  const Config config = split(tiny_gpt(), ctx.size(), 1);
  const ParallelContext context(config, ctx.world());
  device_memory().set_limit((ctx.rank() == 0 ? 256 : 64) * kMebi);
  const auto trainer = make_trainer(with_auto(config, 4096), context, 6);
  try {
    (void)trainer->run();
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.id() == "plan-disagreement");
    CHECK_THAT(error.what(), Catch::Matchers::Contains("rank 1"));
  }
  device_memory().set_limit({});
}

RANKS_TEST_CASE("auto without a size of the device stops before its first update", "[gemini]", 1) {
  const Config config = with_auto(tiny_gpt(), 4096);
  const ParallelContext context(config, ctx.world());
  try {
    (void)train(config, context);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "device-size");
  }
}
