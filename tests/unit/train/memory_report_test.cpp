// Is a report of refused memory exact, and do the changes that it offers save what it says?
#include "train/memory_report.hpp"

#include "config/load.hpp"
#include "memory/device_memory.hpp"
#include "memory_report_helpers.hpp"
#include "mesh/context.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "train/cheaper_runs.hpp"
#include "train/human.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <optional>
#include <stdexcept>

namespace colossal::test {
namespace {

using Catch::Matchers::Contains;

/// The change whose text begins with `name`; its savings are -1 if it is not offered.
CheaperRun find(const std::vector<CheaperRun>& runs, const std::string& name) {
  for (const CheaperRun& run : runs) {
    if (run.change.starts_with(name)) {
      return run;
    }
  }
  return {"", -1};
}

Refusal refused(std::int64_t requested, std::int64_t allocated, std::int64_t limit) {
  return {.requested = requested,
          .allocated = allocated,
          .peak = allocated + 1,
          .limit = limit,
          .place = trace::Place{.phase = trace::Phase::backward, .block = 3, .micro_batch = 1}};
}

TEST_CASE("a smaller micro-batch saves the difference of the two plans", "[memory_report]") {
  const Config config = with_micro_batch(8, 1);
  const CheaperRun run = find(cheaper_runs(config, 0, 1), "train.micro_batch_size 8 -> 4");
  CHECK(run.saved == planned(config) - planned(with_micro_batch(4, 2)));
  CHECK(run.saved > 0);
}

TEST_CASE("a micro-batch is split by its smallest factor, and one sample not at all",
          "[memory_report]") {
  CHECK(find(cheaper_runs(with_micro_batch(9, 1), 0, 1), "train.micro_batch_size 9 -> 3").saved >
        0);
  CHECK(find(cheaper_runs(with_micro_batch(7, 1), 0, 1), "train.micro_batch_size 7 -> 1").saved >
        0);
  CHECK(find(cheaper_runs(with_micro_batch(1, 8), 0, 1), "train.micro_batch_size").saved == -1);
}

TEST_CASE("recomputation of everything is offered host memory for inputs, as --set takes it",
          "[memory_report]") {
  Config config = with_micro_batch(1, 8);
  config.model.num_layers = 12;
  config.train.activation_checkpoint.mode = RecomputeMode::full;
  const auto taken = [&](const char* before) {
    const CheaperRun run = find(cheaper_runs(config, 0, 1), "train.activation_checkpoint");
    CHECK(run.saved > 0);
    std::string change = run.change;
    REQUIRE(change.find(": ") != std::string::npos);
    change.replace(change.find(": "), 2, "=");
    LoadOptions options;
    options.overrides = {{.text = before}, {.text = change}};
    const Loaded loaded = load_text(to_yaml(tiny_gpt()), "tiny", options);
    INFO(run.change << '\n' << render(loaded.diagnostics));
    REQUIRE_FALSE(loaded.has_errors());
    CHECK(loaded.config.train.activation_checkpoint.mode == RecomputeMode::full);
    CHECK(loaded.config.train.activation_checkpoint.offload == InputOffload::cpu);
    return loaded.config.train.activation_checkpoint.blocks;
  };
  CHECK_FALSE(taken("train.activation_checkpoint=full"));
  config.train.activation_checkpoint.blocks = 2;
  CHECK(taken("train.activation_checkpoint={blocks: 2}") == 2);
}

TEST_CASE("changes that suffice alone come first, and there are at most three", "[memory_report]") {
  const Config config = with_micro_batch(8, 1);
  for (const std::int64_t missing : {std::int64_t{1}, planned(config) / 3, planned(config)}) {
    const std::vector<CheaperRun> runs = cheaper_runs(config, 0, missing);
    CHECK(runs.size() <= 3);
    for (std::size_t i = 1; i < runs.size(); ++i) {
      INFO(runs[i - 1].change << ", then " << runs[i].change);
      CHECK(runs[i].saved > 0);
      const bool both_short = runs[i - 1].saved < missing;
      CHECK((!both_short || (runs[i].saved < missing && runs[i].saved <= runs[i - 1].saved)));
    }
  }
}

TEST_CASE("where device and host are one memory, moving between them is no change that saves",
          "[memory_report]") {
  const Config config = with_micro_batch(1, 1);
  const auto offered = [&](MemoryShare share, const std::string& name) {
    return find(cheaper_runs(config, 0, 1, share), name).saved > 0;
  };
  CHECK(offered(MemoryShare::device, "parallel.zero.offload"));
  CHECK(offered(MemoryShare::device, "parallel.gemini.placement"));
  for (const MemoryShare share : {MemoryShare::both, MemoryShare::host}) {
    CHECK_FALSE(offered(share, "parallel.zero.offload"));
    CHECK_FALSE(offered(share, "parallel.gemini.placement"));
  }
  Refusal refusal = refused(kMiB, kMiB, kMiB);
  refusal.limit = std::nullopt;  // the host of a cpu run
  Config on_cpu = config;
  on_cpu.run.device = DeviceKind::cpu;
  CHECK_THAT(out_of_memory(refusal, on_cpu, {0, 1, 0}).what(), !Contains("parallel."));
}

TEST_CASE("the report names rank, place, sizes, estimate and a fix", "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.parallel.data = 4;
  const Error error =
      out_of_memory(refused(3 * kMiB, 30 * kMiB, 32 * kMiB), config, {2, 5, 10 * kMiB});
  CHECK(error.id() == "out-of-memory");
  CHECK(error.exit_code() == 6);
  const std::string text = error.what();
  CHECK_THAT(text,
             Contains("rank 2 is out of memory in backward of block 3, micro-batch 1 of step 5: it "
                      "asked for 3.0 MiB and holds 30.0 MiB of the 32.0 MiB of its device\n"));
  CHECK_THAT(
      text,
      Contains("held      10.0 MiB before the first step; 30.0 MiB at most so far; 1.0 MiB are "
               "missing now"));
  const RankBytes plan = make_plan(config, 0).ranks.front();
  CHECK_THAT(text, Contains("optimizer " + human_binary(static_cast<double>(plan.optimizer))));
  CHECK_THAT(text, Contains(human_binary(static_cast<double>(plan.total())) + " in all"));
  CHECK_THAT(text, Contains("\n  fix "));
}

TEST_CASE("the report sets what is held beside the estimate", "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.parallel.zero.stage = 3;
  const RankBytes plan = make_plan(config, 0).ranks.front();
  RefusedRun where{.rank = 0, .step = 2};
  where.held = HeldBytes{
      .weights = 2 * kMiB, .grads = 3 * kMiB, .optimizer = 4 * kMiB, .borrowed = 5 * kMiB};
  const auto size = [](std::int64_t bytes) { return human_binary(static_cast<double>(bytes)); };
  const auto row = [&](const std::string& name, std::int64_t estimate, std::int64_t held) {
    return fmt::format("\n  {:<23}  {:>9}  {:>8}", name, size(estimate), size(held));
  };
  const std::string text =
      out_of_memory(refused(3 * kMiB, 30 * kMiB, 32 * kMiB), config, where).what();
  CHECK_THAT(text, Contains("are missing now\n  memory                    estimate      held\n"));
  CHECK_THAT(text, Contains(row("weights", plan.weights, 2 * kMiB)));
  CHECK_THAT(text, Contains(row("gradients", plan.grads, 3 * kMiB)));
  CHECK_THAT(text, Contains(row("optimizer", plan.optimizer, 4 * kMiB)));
  CHECK_THAT(text, Contains(row("borrowed for a while", plan.borrowed, 5 * kMiB)));
  CHECK_THAT(text,
             Contains(row("activations and buffers", plan.activations + plan.buffers, 16 * kMiB)));
  CHECK_THAT(text, Contains(row("in all", plan.total(), 30 * kMiB) + "\n  fix "));
  CHECK_THAT(text, !Contains("reserved") && !Contains("estimate  weights"));
}

TEST_CASE("a line of nothing is left out, and the rest is never below it", "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.parallel.zero.offload = Offload::optimizer;
  RefusedRun where{.rank = 0, .step = 2};
  where.held = HeldBytes{.weights = 2 * kMiB};
  const std::string text = out_of_memory(refused(1, kMiB, kMiB), config, where).what();
  CHECK_THAT(text, !Contains("\n  optimizer"));
  const std::size_t rest = text.find("activations and buffers");
  REQUIRE(rest != std::string::npos);
  CHECK_THAT(text.substr(rest, text.find('\n', rest) - rest), Catch::Matchers::EndsWith(" 0 B"));
}

TEST_CASE("of a GPU the report tells what its allocator has and cannot give", "[memory_report]") {
  Refusal refusal = refused(3 * kMiB, 30 * kMiB, 32 * kMiB);
  refusal.cached = {.reserved = 31 * kMiB, .pieces = kMiB, .largest_free = kMiB / 2};
  CHECK_THAT(out_of_memory(refusal, with_micro_batch(8, 1), {0, 1, 0}).what(),
             Contains("are missing now\n  reserved  31.0 MiB by the allocator, 1.0 MiB of it free "
                      "pieces between tensors; the largest free block has 512.0 KiB\n  estimate  "
                      "weights "));
}

TEST_CASE("what does not suffice alone is marked", "[memory_report]") {
  const Config config = with_micro_batch(8, 1);
  CHECK_THAT(out_of_memory(refused(1, kMiB, kMiB), config, {0, 1, 0}).what(),
             !Contains("not enough alone"));
  CHECK_THAT(out_of_memory(refused(1 << 30, kMiB, kMiB), config, {0, 1, 0}).what(),
             Contains("less, not enough alone"));
}

TEST_CASE("before the first step, beside the loop, and without a limit", "[memory_report]") {
  const Config config = with_micro_batch(8, 1);
  Refusal refusal = refused(kMiB, kMiB, kMiB);
  CHECK_THAT(out_of_memory(refusal, config, {0, 0, 0}).what(),
             Contains("rank 0 is out of memory before the first step"));
  refusal.place = trace::Place{.phase = trace::Phase::checkpoint, .block = -1, .micro_batch = -1};
  CHECK_THAT(out_of_memory(refusal, config, {0, 5, 0}).what(),
             Contains("in checkpoint after step 4:"));
  refusal.place = std::nullopt;
  CHECK_THAT(out_of_memory(refusal, config, {0, 7, 0}).what(),
             Contains("beside the loop of step 7"));
  refusal.limit = std::nullopt;
  CHECK_THAT(out_of_memory(refusal, config, {0, 7, 0}).what(), Contains("the host has no more"));
}

TEST_CASE("only refused memory is reported, and the limit is lifted", "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.parallel.data = 2;
  const std::runtime_error other("odd");
  device_memory().set_limit(device_memory().use().current + kMiB);
  std::optional<Error> report;
  try {
    const at::Tensor large = at::empty({2 * kMiB}, at::kByte);
  } catch (const c10::OutOfMemoryError& error) {
    CHECK_FALSE(memory_report(other, config, {}).has_value());
    CHECK(device_memory().limit().has_value());
    report = memory_report(error, config, {1, 3, 0});
  }
  REQUIRE(report.has_value());
  CHECK(report->id() == "out-of-memory");
  CHECK_THAT(report->what(), Contains("rank 1") && Contains("step 3") && Contains("2.0 MiB"));
  CHECK_FALSE(device_memory().limit().has_value());
}

TEST_CASE("the end tells peaks and the plan's error", "[memory_report]") {
  MemorySummary memory{.device_peak = 200 * kMiB, .planned = 190 * kMiB};
  CHECK(memory.plan_error() == Approx(-0.05));
  CHECK(to_text(memory) == "memory    peak 200.0 MiB of tensors a rank, planned 190.0 MiB (-5.0%)");
  memory.device_limit = 256 * kMiB;
  memory.gathered_peak = 5 * kMiB;
  memory.host_peak = 3 * kMiB;
  memory.nvme_peak = 2048 * kMiB;
  CHECK(to_text(memory) ==
        "memory    peak 200.0 MiB of tensors a rank of 256.0 MiB, planned 190.0 MiB (-5.0%), "
        "gathered at most 5.0 MiB, host 3.0 MiB, nvme 2.0 GiB");
  CHECK(MemorySummary{}.plan_error() == 0);
}

TEST_CASE("the end compares with the plan for the device that is there", "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.parallel.gemini.emplace();
  config.parallel.gemini->placement = Placement::automatic;
  const std::int64_t unsized = planned(config);
  const ParallelContext context(config);
  CHECK(measure_memory(config, context.comm(data_axes())).planned == unsized);
  device_memory().set_limit(256 * kMiB);  // as a GPU has one that no key says
  const MemorySummary memory = measure_memory(config, context.comm(data_axes()));
  device_memory().set_limit(std::nullopt);
  config.run.device_memory = 256 * kMiB;
  CHECK(memory.planned == planned(config));
  CHECK(memory.planned > unsized);
  CHECK(memory.device_limit == 0);
}

TEST_CASE("a plan is refused from the first byte that its device does not have",
          "[memory_report]") {
  CHECK(refusal_of(with_missing(0)).empty());
  CHECK(refusal_of(with_missing(-1)).empty());
  const std::string text = refusal_of(with_missing(1));
  CHECK_THAT(text, Contains("on rank 0, and run.device_memory is"));
  CHECK_THAT(text, Contains("fix       train.micro_batch_size 8 -> 4: "));
  CHECK_THAT(text, !Contains("not enough alone"));
}

TEST_CASE("changes that a refusal offers make the plan fit, where one alone can",
          "[memory_report]") {
  const Config config = with_missing(planned(with_micro_batch(8, 1)) -
                                     planned(with_micro_batch(4, 2)));  // what half of it saves
  REQUIRE_THAT(refusal_of(config), Contains("train.micro_batch_size 8 -> 4: "));
  Config smaller = config;
  smaller.train.micro_batch_size = 4;
  smaller.train.gradient_accumulation = 2;
  CHECK(refusal_of(smaller).empty());
  Config tiny = config;
  tiny.run.device_memory = 10'000;
  CHECK_THAT(refusal_of(tiny), Contains("not enough alone"));
}

TEST_CASE("a change by degrees goes as far as it must", "[memory_report]") {
  const Config config = with_micro_batch(8, 1);
  std::int64_t before = 0;
  for (const std::int64_t micro : {4, 2, 1}) {
    const std::int64_t saved = planned(config) - planned(with_micro_batch(micro, 8 / micro));
    const std::string change = fmt::format("train.micro_batch_size 8 -> {}", micro);
    CHECK(find(cheaper_runs(config, 0, before + 1), change).saved == saved);
    CHECK(find(cheaper_runs(config, 0, saved), change).saved == saved);
    before = saved;
  }
  Config cut = with_micro_batch(1, 8);
  cut.parallel.data = 4;
  const std::int64_t one = find(cheaper_runs(cut, 0, 1), "parallel.zero.stage 0 -> 1").saved;
  CHECK(one > 0);
  CHECK(find(cheaper_runs(cut, 0, one), "parallel.zero.stage 0 -> 1").saved == one);
}

TEST_CASE("without a device of a size the machine decides, for all ranks together",
          "[memory_report]") {
  Config config = with_micro_batch(8, 1);
  config.run.device = DeviceKind::cpu;
  CHECK(refusal_of(config).empty());
  config.model.hidden_size = 16384;
  config.model.ffn_hidden_size = 65536;
  config.model.num_layers = 200;  // 640 billion parameters
  CHECK_THAT(refusal_of(config), Contains("for 1 process, and this machine has "));
  config.run.device_memory = std::int64_t{1} << 50U;  // simulated, in the same host memory
  CHECK_THAT(refusal_of(config), Contains("for 1 process, and this machine has "));
  config.run.device = DeviceKind::cuda;  // a GPU of another machine is meant
  CHECK(refusal_of(config).empty());
}

}  // namespace
}  // namespace colossal::test
