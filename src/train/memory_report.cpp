// How is less memory found? The plan of a changed configuration tells what the change saves.
#include "train/memory_report.hpp"

#include "core/log.hpp"
#include "train/foreign.hpp"
#include "train/human.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <source_location>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

constexpr std::size_t kMaxChanges = 3;

std::string size_text(std::int64_t bytes) {
  return human_binary(static_cast<double>(bytes));
}

/// A configuration that may need less, and what was changed.
struct Candidate {
  std::string change;
  Config config;
};

/// The smallest factor of a number above 1.
std::int64_t smallest_factor(std::int64_t number) {
  std::int64_t factor = 2;
  while (factor * factor <= number && number % factor != 0) {
    ++factor;
  }
  return number % factor == 0 ? factor : number;
}

void add_batch_change(const Config& config, std::vector<Candidate>& candidates) {
  const std::int64_t micro = config.train.micro_batch_size;
  if (micro < 2) {
    return;
  }
  const std::int64_t factor = smallest_factor(micro);
  Candidate& smaller = candidates.emplace_back(
      Candidate{fmt::format("train.micro_batch_size {} -> {}", micro, micro / factor), config});
  smaller.config.train.micro_batch_size = micro / factor;
  smaller.config.train.gradient_accumulation *= factor;
}

void add_sharding_changes(const Config& config, std::vector<Candidate>& candidates) {
  const ZeroConfig& zero = config.parallel.zero;
  for (std::int64_t stage = zero.stage + 1; stage <= 3 && config.parallel.data > 1; ++stage) {
    Candidate& sharded = candidates.emplace_back(
        Candidate{fmt::format("parallel.zero.stage {} -> {}", zero.stage, stage), config});
    sharded.config.parallel.zero.stage = stage;
  }
  if (zero.offload == Offload::none) {
    Candidate& offloaded =
        candidates.emplace_back(Candidate{"parallel.zero.offload: optimizer", config});
    offloaded.config.parallel.zero.offload = Offload::optimizer;
  }
}

/// In order of what they cost in time: the cheapest first.
std::vector<Candidate> candidates_of(const Config& config) {
  std::vector<Candidate> candidates;
  add_batch_change(config, candidates);
  if (config.train.activation_checkpoint.mode != RecomputeMode::full) {
    Candidate& full =
        candidates.emplace_back(Candidate{"train.activation_checkpoint: full", config});
    full.config.train.activation_checkpoint = {};
    full.config.train.activation_checkpoint.mode = RecomputeMode::full;
  }
  if (!config.parallel.gemini) {
    add_sharding_changes(config, candidates);
    const bool sized = config.run.device_memory.has_value();  // which placement auto needs
    Candidate& gemini = candidates.emplace_back(Candidate{
        sized ? "parallel.gemini.placement: auto" : "parallel.gemini.placement: cpu", config});
    gemini.config.parallel.zero = {};
    gemini.config.parallel.gemini.emplace().placement =
        sized ? Placement::automatic : Placement::cpu;
  }
  return candidates;
}

RankBytes plan_of(const Config& config, int rank) {
  return make_plan(config, 0).ranks.at(static_cast<std::size_t>(rank));
}

/// What a change saves; 0 if the planner does not take it.
std::int64_t saved_by(const Candidate& candidate, const RankBytes& now, MemoryShare share) {
  try {
    return bytes_of(now, share) - bytes_of(plan_of(candidate.config, now.rank), share);
  } catch (const Error&) {
    return 0;
  }
}

/// "in the forward pass of block 3, micro-batch 1, of step 5".
std::string place_text(const std::optional<trace::Place>& place, std::int64_t step) {
  if (step == 0) {
    return "before the first step";
  }
  std::string text = place ? fmt::format("in {}", trace::name(place->phase)) : "beside the loop";
  if (place && place->block >= 0) {
    text += fmt::format(" of block {}", place->block);
  }
  if (place && place->micro_batch >= 0) {
    text += fmt::format(", micro-batch {}", place->micro_batch);
  }
  // What is done between two steps belongs to the one that has ended.
  const bool between =
      place && (place->phase == trace::Phase::checkpoint || place->phase == trace::Phase::eval ||
                place->phase == trace::Phase::hooks);
  return text +
         (between ? fmt::format(" after step {}", step - 1) : fmt::format(" of step {}", step));
}

std::string estimate_text(const RankBytes& plan) {
  return fmt::format(
      "weights {}, gradients {}, optimizer {}, borrowed for a while {}, activations {}, buffers "
      "{}: "
      "{} in all",
      size_text(plan.weights),
      size_text(plan.grads),
      size_text(plan.optimizer),
      size_text(plan.borrowed),
      size_text(plan.activations),
      size_text(plan.buffers),
      size_text(plan.total()));
}

std::string fix_text(const Config& config, int rank, std::int64_t missing, MemoryShare share) {
  std::string text;
  for (const CheaperRun& run : cheaper_runs(config, rank, missing, share)) {
    text += fmt::format("\n  {:<9} {}: {} less{}",
                        text.empty() ? "fix" : "",
                        run.change,
                        size_text(run.saved),
                        run.saved < missing ? ", not enough alone" : "");
  }
  return !text.empty() ? text
                       : fmt::format("\n  fix       a smaller model, or {}",
                                     share == MemoryShare::device ? "a larger device"
                                                                  : "a machine with more memory");
}

std::string percent(double share) {
  return fmt::format("{:+.1f}%", 100 * share);
}

}  // namespace

std::vector<CheaperRun> cheaper_runs(const Config& config,
                                     int rank,
                                     std::int64_t missing,
                                     MemoryShare share) {
  const RankBytes now = plan_of(config, rank);
  std::vector<CheaperRun> runs;
  for (Candidate& candidate : candidates_of(config)) {
    const std::int64_t saved = saved_by(candidate, now, share);
    if (saved > 0) {
      runs.push_back({std::move(candidate.change), saved});
    }
  }
  const auto enough = [&](const CheaperRun& run) { return run.saved >= missing; };
  const auto rest = std::stable_partition(runs.begin(), runs.end(), enough);
  std::stable_sort(
      rest, runs.end(), [](const CheaperRun& a, const CheaperRun& b) { return a.saved > b.saved; });
  runs.resize(std::min(runs.size(), kMaxChanges));
  return runs;
}

Error out_of_memory(const Refusal& refusal, const Config& config, const RefusedRun& where) {
  const std::string of = refusal.limit
                             ? fmt::format(" of the {} of its device", size_text(*refusal.limit))
                             : ", and the host has no more";
  const std::int64_t missing =
      refusal.limit
          ? std::max<std::int64_t>(refusal.allocated + refusal.requested - *refusal.limit, 0)
          : refusal.requested;
  // Without a limit it is the host that refused, and what moves there saves nothing.
  const MemoryShare share =
      refusal.limit || capacity_of(config).apart ? MemoryShare::device : MemoryShare::both;
  return {
      ErrorKind::memory,
      "out-of-memory",
      fmt::format("rank {} is out of memory {}: it asked for {} and holds {}{}\n"
                  "  held      {} before the first step; {} at most so far; {} are missing now\n"
                  "  estimate  {}{}",
                  where.rank,
                  place_text(refusal.place, where.step),
                  size_text(refusal.requested),
                  size_text(refusal.allocated),
                  of,
                  size_text(where.step == 0 ? refusal.allocated : where.persistent),
                  size_text(refusal.peak),
                  size_text(missing),
                  estimate_text(plan_of(config, where.rank)),
                  fix_text(config, where.rank, missing, share)),
      std::source_location::current()};
}

std::optional<Error> memory_report(const std::exception& error,
                                   const Config& config,
                                   const RefusedRun& where) {
  const std::optional<Refusal> refusal = device_memory().last_refusal();
  if (!refusal || to_error(error).id() != "out-of-memory") {
    return std::nullopt;
  }
  device_memory().set_limit(std::nullopt);
  return out_of_memory(*refusal, config, where);
}

double MemorySummary::plan_error() const {
  return device_peak > 0 ? static_cast<double>(planned) / static_cast<double>(device_peak) - 1 : 0;
}

MemorySummary measure_memory(const Config& config, const Comm& world) {
  at::Tensor peaks = at::empty({4}, at::kLong);
  auto* const values = peaks.mutable_data_ptr<std::int64_t>();
  const std::array kinds = {
      MemoryKind::device, MemoryKind::host, MemoryKind::gathered, MemoryKind::nvme};
  values[0] = device_memory().use().highest;
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    values[i] = gauge(kinds[i]).use().highest;
  }
  world.all_reduce(peaks, ReduceOp::max).wait();
  MemorySummary memory{.device_peak = values[0],
                       .device_limit = config.run.device_memory.value_or(0),
                       .host_peak = values[1],
                       .gathered_peak = values[2],
                       .nvme_peak = values[3]};
  for (const RankBytes& rank : make_plan(config, 0).ranks) {
    memory.planned = std::max(memory.planned, rank.total());
  }
  return memory;
}

void warn_if_over(const PlanReport& plan, const Config& config) {
  if (const auto over = overrun(plan, capacity_of(config))) {
    log::warn("[memory] {}: the run will probably end out of memory [memory-over]", over->text);
  }
}

void refuse_if_over(const PlanReport& plan, const Config& config) {
  if (const auto over = overrun(plan, capacity_of(config))) {
    fail(ErrorKind::config,
         "memory-over",
         "{}{}",
         over->text,
         fix_text(config, over->rank, over->missing, over->share));
  }
}

std::string to_text(const MemorySummary& memory) {
  std::string text = fmt::format(
      "memory    peak {} of tensors a rank{}, planned {} ({})",
      size_text(memory.device_peak),
      memory.device_limit > 0 ? fmt::format(" of {}", size_text(memory.device_limit)) : "",
      size_text(memory.planned),
      percent(memory.plan_error()));
  const auto add = [&](std::string_view name, std::int64_t bytes) {
    text += bytes > 0 ? fmt::format(", {} {}", name, size_text(bytes)) : "";
  };
  add("gathered at most", memory.gathered_peak);
  add("host", memory.host_peak);
  add("nvme", memory.nvme_peak);
  return text;
}

}  // namespace colossal
