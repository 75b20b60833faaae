// How is less memory found? The plan of a changed configuration tells what the change saves.
#include "train/cheaper_runs.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "train/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

constexpr std::size_t kMaxChanges = 3;

/// A configuration that may need less, and what was changed.
struct Candidate {
  std::string change;
  Config config;
};

/// One change from mild to strong: the mildest that suffices is offered.
using Variants = std::vector<Candidate>;

/// A variant whose number goes from one value to another.
Candidate& add_number(Variants& variants,
                      const Config& config,
                      std::string_view key,
                      const auto& from,
                      const auto& to) {
  return variants.emplace_back(Candidate{fmt::format("{} {} -> {}", key, from, to), config});
}

/// The smallest factor of a number above 1.
std::int64_t smallest_factor(std::int64_t number) {
  std::int64_t factor = 2;
  while (factor * factor <= number && number % factor != 0) {
    ++factor;
  }
  return number % factor == 0 ? factor : number;
}

Variants smaller_batches(const Config& config) {
  const TrainConfig& train = config.train;
  Variants variants;
  for (std::int64_t micro = train.micro_batch_size; micro > 1;) {
    micro /= smallest_factor(micro);
    Config& smaller =
        add_number(variants, config, "train.micro_batch_size", train.micro_batch_size, micro)
            .config;
    smaller.train.micro_batch_size = micro;
    smaller.train.gradient_accumulation *= train.micro_batch_size / micro;
  }
  return variants;
}

Variants recomputation(const Config& config) {
  Variants variants;
  if (config.train.activation_checkpoint.mode != RecomputeMode::full) {
    Config& full =
        variants.emplace_back(Candidate{"train.activation_checkpoint: full", config}).config;
    full.train.activation_checkpoint = {};
    full.train.activation_checkpoint.mode = RecomputeMode::full;
  } else if (config.train.activation_checkpoint.offload == InputOffload::none) {
    // The word `full` may stand in place of the mapping: then the key has no place to be set at.
    const ActivationCheckpointConfig& now = config.train.activation_checkpoint;
    const bool word = now.every == 1 && !now.blocks;
    variants
        .emplace_back(Candidate{word ? "train.activation_checkpoint: {mode: full, offload: cpu}"
                                     : "train.activation_checkpoint.offload: cpu",
                                config})
        .config.train.activation_checkpoint.offload = InputOffload::cpu;
  }
  return variants;
}

Variants nothing_ahead(const Config& config) {
  Variants variants;
  if (const std::int64_t ahead = config.parallel.zero.prefetch; ahead > 0) {
    add_number(variants, config, "parallel.zero.prefetch", ahead, 0).config.parallel.zero.prefetch =
        0;
  }
  return variants;
}

/// Chunks down to a sixty-fourth: `largest` is what they have now.
Variants smaller_chunks(const Config& config, std::int64_t largest) {
  constexpr std::int64_t kLeast = 4096;
  constexpr std::int64_t kSmallest = 64;  // of the present length
  const bool gemini = config.parallel.gemini.has_value();
  const std::optional<std::int64_t> now =
      gemini ? config.parallel.gemini->chunk_size : config.parallel.zero.bucket_size;
  const std::int64_t from = now.value_or(largest);
  Variants variants;
  for (std::int64_t to = from / 2; to >= std::max(kLeast, from / kSmallest); to /= 2) {
    const std::string_view key =
        gemini ? "parallel.gemini.chunk_size" : "parallel.zero.bucket_size";
    Config& smaller = add_number(variants, config, key, from, to).config;
    (gemini ? smaller.parallel.gemini->chunk_size : smaller.parallel.zero.bucket_size) = to;
  }
  return variants;
}

Variants more_cutting(const Config& config) {
  const std::int64_t stage = config.parallel.zero.stage;
  Variants variants;
  for (std::int64_t to = stage + 1; to <= 3 && config.parallel.data > 1; ++to) {
    add_number(variants, config, "parallel.zero.stage", stage, to).config.parallel.zero.stage = to;
  }
  return variants;
}

Variants offloading(const Config& config) {
  const ZeroConfig& zero = config.parallel.zero;
  Variants variants;
  if (zero.offload == Offload::none) {
    variants.emplace_back(Candidate{"parallel.zero.offload: optimizer", config})
        .config.parallel.zero.offload = Offload::optimizer;
  }
  if (zero.stage == 3 && zero.offload != Offload::optimizer_params) {
    variants.emplace_back(Candidate{"parallel.zero.offload: optimizer+params", config})
        .config.parallel.zero.offload = Offload::optimizer_params;
  }
  return variants;
}

/// What of the device gemini leaves unused costs nothing.
std::vector<Variants> larger_budgets(const Config& config, std::int64_t missing) {
  const GeminiConfig& gemini = *config.parallel.gemini;
  Variants budget;
  Variants ratio;
  Variants reserve;
  if (gemini.placement == Placement::constant) {
    const std::int64_t to = gemini.const_budget + missing;
    add_number(budget, config, "parallel.gemini.const_budget", gemini.const_budget, to)
        .config.parallel.gemini->const_budget = to;
  }
  if (gemini.placement == Placement::automatic) {
    add_number(
        ratio, config, "parallel.gemini.steady_cuda_cap_ratio", gemini.steady_cuda_cap_ratio, 1)
        .config.parallel.gemini->steady_cuda_cap_ratio = 1;
    add_number(reserve, config, "parallel.gemini.reserve", gemini.reserve, 0)
        .config.parallel.gemini->reserve = 0;
  }
  return {budget, reserve, ratio};
}

/// Keys that another placement does not take, as changes: ", parallel.gemini.const_budget: null".
std::string undone(const ParallelConfig& parallel) {
  const GeminiConfig now = parallel.gemini.value_or(GeminiConfig{});
  const GeminiConfig standard;
  const ZeroConfig& zero = parallel.zero;
  const std::array<std::pair<std::string_view, bool>, 10> keys = {{
      {"zero.stage", zero.stage == 1 || zero.stage == 2},
      {"zero.offload", zero.offload != Offload::none},
      {"zero.bucket_size", !parallel.gemini && zero.bucket_size},
      {"gemini.shard_param_frac", now.shard_param_frac != standard.shard_param_frac},
      {"gemini.offload_optim_frac", now.offload_optim_frac != standard.offload_optim_frac},
      {"gemini.offload_param_frac", now.offload_param_frac != standard.offload_param_frac},
      {"gemini.const_budget", now.const_budget != standard.const_budget},
      {"gemini.steady_cuda_cap_ratio", now.steady_cuda_cap_ratio != standard.steady_cuda_cap_ratio},
      {"gemini.margin_ratio", now.margin_ratio != standard.margin_ratio},
      {"gemini.reserve", now.reserve != standard.reserve},
  }};
  std::string text;
  for (const auto& [key, given] : keys) {
    text += given ? fmt::format(", parallel.{}: null", key) : "";
  }
  return text;
}

/// Other placements; one without a budget of gathered weights lacks nothing of it.
std::vector<Variants> other_placements(const Config& config) {
  const bool sized = config.run.device_memory.has_value();  // which placement auto needs
  const std::optional<GeminiConfig>& now = config.parallel.gemini;
  std::vector<Variants> changes;
  const auto add = [&](Placement placement) {
    Candidate& other = changes.emplace_back().emplace_back(Candidate{
        fmt::format(
            "parallel.gemini.placement: {}{}", yaml_word(placement), undone(config.parallel)),
        config});
    GeminiConfig gemini{.placement = placement};
    if (now) {
      gemini.chunk_size = now->chunk_size;
      gemini.host_memory = now->host_memory;
      gemini.nvme = now->nvme;
    }
    ZeroConfig& zero = other.config.parallel.zero;
    zero.stage = 0;
    zero.offload = Offload::none;
    zero.bucket_size = now ? zero.bucket_size : std::nullopt;
    other.config.parallel.gemini = gemini;
  };
  for (const Placement placement : {Placement::cuda, Placement::automatic, Placement::cpu}) {
    const bool other = now ? placement != now->placement : sized != (placement == Placement::cpu);
    const bool possible = placement == Placement::automatic ? sized : now || !sized;
    if (other && possible) {
      add(placement);
    }
  }
  return changes;
}

/// Bytes of the GPU that a rank would have; 0: none is here, its size is simulated or one
/// elsewhere.
std::int64_t card_bytes(Config config) {
  config.run.device_memory.reset();
  return capacity_of(config).device;
}

/// Of a simulated device, or of the part of a GPU that is used.
Variants larger_device(const Config& config, std::int64_t missing) {
  const GeminiConfig& gemini = *config.parallel.gemini;
  Variants variants;
  if (gemini.placement == Placement::automatic && config.run.device_memory) {
    const double share = gemini.steady_cuda_cap_ratio * (1 - gemini.reserve);
    const std::int64_t to =
        *config.run.device_memory +
        static_cast<std::int64_t>(std::ceil(static_cast<double>(missing) / share));
    if (const std::int64_t card = card_bytes(config); card > 0 && to > card) {
      return {};  // no key makes it larger
    }
    add_number(variants, config, "run.device_memory", *config.run.device_memory, to)
        .config.run.device_memory = to;
  }
  return variants;
}

/// In order of what they cost in time: the cheapest first.
std::vector<Variants> changes_of(const Config& config,
                                 const PlanReport& plan,
                                 std::int64_t missing,
                                 MemoryShare share) {
  std::vector<Variants> changes;
  const auto add = [&](std::vector<Variants> more) {
    std::ranges::move(more, std::back_inserter(changes));
  };
  const bool budget = share == MemoryShare::budget;
  if (budget) {
    add(larger_budgets(config, missing));
  }
  add({smaller_batches(config),
       recomputation(config),
       nothing_ahead(config),
       smaller_chunks(config, plan.chunk_bytes)});
  if (!config.parallel.gemini) {
    add({more_cutting(config), offloading(config)});
  }
  add(other_placements(config));
  if (budget) {
    add({larger_device(config, missing)});
  }
  return changes;
}

/// What a plan has less of than another; 0 if the planner does not take the configuration, or if it
/// would move the fault to where it does not fit either.
std::int64_t saved_by(const Config& changed,
                      const RankBytes& now,
                      std::int64_t missing,
                      MemoryShare share) {
  RankBytes then;
  try {
    then = make_plan(changed, 0).ranks.at(static_cast<std::size_t>(now.rank));
  } catch (const Error&) {
    return 0;
  }
  const std::int64_t saved = bytes_of(now, share) - bytes_of(then, share);
  if (share == MemoryShare::budget) {
    const std::int64_t device = changed.run.device_memory.value_or(then.total());
    const bool unbounded = !then.slack.has_value();
    return then.total() > device ? 0 : (unbounded ? std::max(saved, missing) : saved);
  }
  return then.slack.value_or(0) < 0 ? std::min(saved, missing - 1) : saved;
}

/// The mildest variant that saves enough, or else the one that saves most.
CheaperRun best_of(const Variants& variants,
                   const RankBytes& now,
                   std::int64_t missing,
                   MemoryShare share) {
  CheaperRun best;
  for (const Candidate& candidate : variants) {
    const std::int64_t saved = saved_by(candidate.config, now, missing, share);
    if (saved > best.saved) {
      best = {candidate.change, saved};
    }
    if (best.saved >= missing) {
      break;
    }
  }
  return best;
}

}  // namespace

std::vector<CheaperRun> cheaper_runs(const Config& config,
                                     int rank,
                                     std::int64_t missing,
                                     MemoryShare share) {
  const PlanReport plan = make_plan(config, 0);
  const RankBytes& now = plan.ranks.at(static_cast<std::size_t>(rank));
  std::vector<CheaperRun> runs;
  for (const Variants& variants : changes_of(config, plan, missing, share)) {
    if (CheaperRun best = best_of(variants, now, missing, share); best.saved > 0) {
      runs.push_back(std::move(best));
    }
  }
  const auto enough = [&](const CheaperRun& run) { return run.saved >= missing; };
  const auto rest = std::stable_partition(runs.begin(), runs.end(), enough);
  std::stable_sort(
      rest, runs.end(), [](const CheaperRun& a, const CheaperRun& b) { return a.saved > b.saved; });
  runs.resize(std::min(runs.size(), kMaxChanges));
  return runs;
}

}  // namespace colossal
