// What does a run say that has no memory left, and what at its end?
#include "train/memory_report.hpp"

#include "core/log.hpp"
#include "memory/accounting.hpp"
#include "train/cheaper_runs.hpp"
#include "train/foreign.hpp"
#include "train/human.hpp"
#include "train/table.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal {
namespace {

std::string size_text(std::int64_t bytes) {
  return human_binary(static_cast<double>(bytes));
}

RankBytes plan_of(const Config& config, int rank) {
  return make_plan(config, 0).ranks.at(static_cast<std::size_t>(rank));
}

/// Placement auto looks at the device that is there, of `bytes` (0 or unset: of no known size),
/// which no key need say.
Config sized(Config config, std::optional<std::int64_t> bytes) {
  const std::optional<GeminiConfig>& gemini = config.parallel.gemini;
  const bool looks = gemini && gemini->placement == Placement::automatic;
  if (looks && bytes.value_or(0) > 0 && !config.run.device_memory) {
    config.run.device_memory = bytes;
  }
  return config;
}

/// The micro-batches of the first step, the shortest of a ramp: what lacks for it lacks for all.
Config of_first_step(Config config) {
  if (const std::optional<BatchRampConfig>& ramp = config.train.batch_ramp) {
    config.train.gradient_accumulation =
        std::min(config.train.gradient_accumulation,
                 ramp->start / (config.train.micro_batch_size * config.parallel.data));
  }
  return config;
}

/// What of a plan does not fit, with what placement auto would find there. `with_size`: sized().
std::optional<Overrun> overrun_of(const PlanReport& plan,
                                  const Config& with_size,
                                  const Capacity& capacity) {
  if (plan.device_memory == with_size.run.device_memory.value_or(0)) {
    return overrun(plan, capacity);
  }
  PlanReport again = make_plan(with_size, 0);
  again.ranks_per_node = plan.ranks_per_node;
  return overrun(again, capacity);
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
      "  estimate  weights {}, gradients {}, optimizer {}, borrowed for a while {}, activations "
      "{}, "
      "buffers {}: {} in all",
      size_text(plan.weights),
      size_text(plan.grads),
      size_text(plan.optimizer),
      size_text(plan.borrowed),
      size_text(plan.activations),
      size_text(plan.buffers),
      size_text(plan.total()));
}

/// What a GPU's allocator has and cannot give in one piece; empty where nothing is cached.
std::string cached_text(const std::optional<CachedBytes>& cached) {
  return cached ? fmt::format(
                      "  reserved  {} by the allocator, {} of it free pieces between tensors; "
                      "the largest free block has {}\n",
                      size_text(cached->reserved),
                      size_text(cached->pieces),
                      size_text(cached->largest_free))
                : "";
}

/// The estimate beside what is held of it, without the lines of nothing. What is not the store's is
/// one line: blocks and libraries do not say which of it is whose.
std::string held_table(const RankBytes& plan, const HeldBytes& held, std::int64_t allocated) {
  const std::int64_t rest = std::max<std::int64_t>(allocated - held.total(), 0);
  std::vector<TableRow> rows = {{"memory", "estimate", "held"}};
  const auto add = [&](const char* name, std::int64_t estimate, std::int64_t now) {
    if (estimate > 0 || now > 0) {
      rows.push_back({name, size_text(estimate), size_text(now)});
    }
  };
  add("weights", plan.weights, held.weights);
  add("gradients", plan.grads, held.grads);
  add("optimizer", plan.optimizer, held.optimizer);
  add("borrowed for a while", plan.borrowed, held.borrowed);
  add("activations and buffers", plan.activations + plan.buffers, rest);
  add("in all", plan.total(), allocated);
  std::string text = to_table(rows, {.begin = "  "});
  text.pop_back();
  return text;
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

Error out_of_memory(const Refusal& refusal, const Config& config, const RefusedRun& where) {
  const std::string of = refusal.limit
                             ? fmt::format(" of the {} of its device", size_text(*refusal.limit))
                             : ", and the host has no more";
  const std::int64_t missing =
      refusal.limit
          ? std::max<std::int64_t>(refusal.allocated + refusal.requested - *refusal.limit, 0)
          : refusal.requested;
  const RankBytes plan = plan_of(config, where.rank);
  // The refused request is the first that does not fit; the plan knows how much more would come.
  const std::int64_t in_all = std::max(missing, refusal.limit ? plan.total() - *refusal.limit : 0);
  // Without a limit it is the host that refused, and what moves there saves nothing.
  const MemoryShare share =
      refusal.limit || capacity_of(config).apart ? MemoryShare::device : MemoryShare::both;
  return {ErrorKind::memory,
          "out-of-memory",
          fmt::format(
              "rank {} is out of memory {}: it asked for {} and holds {}{}\n"
              "  held      {} before the first step; {} at most so far; {} are missing now\n"
              "{}{}{}",
              where.rank,
              place_text(refusal.place, where.step),
              size_text(refusal.requested),
              size_text(refusal.allocated),
              of,
              size_text(where.step == 0 ? refusal.allocated : where.persistent),
              size_text(refusal.peak),
              size_text(missing),
              cached_text(refusal.cached),
              where.held ? held_table(plan, *where.held, refusal.allocated) : estimate_text(plan),
              fix_text(config, where.rank, in_all, share)),
          std::source_location::current()};
}

Error budget_too_small(const Error& error, const Config& config, const RefusedRun& where) {
  const std::string_view text = error.what();
  const RankBytes plan = plan_of(config, where.rank);
  const std::int64_t missing =
      std::max({where.budget_missing, bytes_of(plan, MemoryShare::budget), std::int64_t{1}});
  return {ErrorKind::memory,
          "budget-too-small",
          fmt::format("{}\n{}{}",  // the same on all ranks: told once
                      text.substr(0, text.find('\n')),
                      estimate_text(plan),
                      fix_text(config, where.rank, missing, MemoryShare::budget)),
          error.where()};
}

std::optional<Error> memory_report(const std::exception& error,
                                   const Config& config,
                                   const RefusedRun& where) {
  const std::optional<Refusal> refusal = device_memory().last_refusal();
  const Error known = to_error(error);
  const Config with_size = sized(config, device_memory().limit());
  if (known.id() == "budget-too-small") {
    device_memory().set_limit(std::nullopt);
    return budget_too_small(known, with_size, where);
  }
  if (!refusal || known.id() != "out-of-memory") {
    return std::nullopt;
  }
  device_memory().set_limit(std::nullopt);
  return out_of_memory(*refusal, with_size, where);
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
  for (const RankBytes& rank : make_plan(sized(config, device_memory().limit()), 0).ranks) {
    memory.planned = std::max(memory.planned, rank.total());
  }
  return memory;
}

void refuse_certain_lack(const Config& config, int rank) {
  const Config first = of_first_step(sized(config, device_memory().limit()));
  const std::optional<GeminiConfig>& gemini = first.parallel.gemini;
  if (!gemini || gemini->placement != Placement::automatic || !first.run.device_memory) {
    return;
  }
  const auto device = static_cast<double>(*first.run.device_memory);
  const std::int64_t missing = bytes_of(plan_of(first, rank), MemoryShare::budget);
  if (static_cast<double>(missing) <= kPlanError * device) {
    return;
  }
  const double share =
      usable_share({.steady_ratio = gemini->steady_cuda_cap_ratio, .reserve = gemini->reserve});
  const auto usable = static_cast<std::int64_t>(share * device);
  fail(ErrorKind::memory,
       "budget-too-small",
       "no step has begun: by the plan a step needs {} bytes at its fullest moment, and {} of the "
       "device's {} bytes may be used: {} bytes are missing",
       usable + missing,
       usable,
       *first.run.device_memory,
       missing);
}

void warn_if_over(const PlanReport& plan, const Config& config) {
  const Capacity capacity = capacity_of(config);
  if (const auto over = overrun_of(plan, sized(config, capacity.device), capacity)) {
    log::warn("[memory] {}: the run will probably end out of memory [memory-over]", over->text);
  }
}

void refuse_if_over(const PlanReport& plan, const Config& config) {
  const Capacity capacity = capacity_of(config);
  const Config with_size = sized(config, capacity.device);
  const auto over = overrun_of(plan, with_size, capacity);
  if (!over) {
    return;
  }
  blaming(over->key, [&] {
    fail(ErrorKind::config,
         "memory-over",
         "{}{}",
         over->text,
         fix_text(with_size, over->rank, over->missing, over->share));
  });
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
