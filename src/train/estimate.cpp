// How are layouts enumerated, and when are two of them the same?
#include "train/estimate.hpp"

#include "train/startup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace colossal {
namespace {

using Sets = std::vector<std::string>;

/// Any layout of ZeRO, and the placements of Gemini that need no further key. The first stands for
/// the policy that is written.
std::vector<Sets> policies(bool sized, std::int64_t world) {
  std::vector<Sets> all = {{}};
  const auto zero = [&](std::int64_t stage, const char* offload) {
    all.push_back({"parallel.gemini=null",
                   fmt::format("parallel.zero.stage={}", stage),
                   fmt::format("parallel.zero.offload={}", offload)});
  };
  const std::int64_t last_stage = world > 1 ? 3 : 0;  // one process has nothing to cut
  for (std::int64_t stage = 0; stage <= last_stage; ++stage) {
    zero(stage, "none");
    zero(stage, "optimizer");
  }
  zero(3, "optimizer+params");
  for (const char* placement : {"cuda", "cpu", "auto"}) {
    if (sized || std::string_view(placement) != "auto") {
      all.push_back({"parallel.zero.stage=null",
                     "parallel.zero.offload=null",
                     "parallel.zero.bucket_size=null",
                     fmt::format("parallel.gemini={{placement: {}}}", placement)});
    }
  }
  return all;
}

/// Micro-batches that divide a rank's share of the batch: all of it, halves of it, and one sample.
std::vector<std::int64_t> micro_batches(std::int64_t share) {
  constexpr std::size_t kMost = 6;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = share; sizes.size() + 1 < kMost; size /= 2) {
    sizes.push_back(size);
    if (size % 2 != 0) {
      break;
    }
  }
  if (sizes.back() != 1) {
    sizes.push_back(1);
  }
  return sizes;
}

std::string policy_text(const ParallelConfig& parallel) {
  if (parallel.gemini) {
    return fmt::format("gemini {}", yaml_word(parallel.gemini->placement));
  }
  constexpr std::array<std::string_view, 3> kWhere = {
      "", ", optimizer on host", ", optimizer and weights on host"};
  return fmt::format(
      "zero {}{}", parallel.zero.stage, kWhere[static_cast<std::size_t>(parallel.zero.offload)]);
}

std::string recompute_text(const ActivationCheckpointConfig& recompute) {
  constexpr std::array<std::string_view, 3> kModes = {"none", "selective", "full"};
  return std::string(kModes[static_cast<std::size_t>(recompute.mode)]) +
         (recompute.offload == InputOffload::cpu ? ", inputs on host" : "");
}

EstimateRow row_of(const Config& config, const PlanReport& plan, const Capacity& capacity) {
  EstimateRow row{.world = plan.world,
                  .sets = {},
                  .policy = policy_text(config.parallel),
                  .recompute = recompute_text(config.train.activation_checkpoint),
                  .global_batch = plan.global_batch,
                  .micro_batch = plan.micro_batch,
                  .accumulation = plan.accumulation,
                  .bytes = *std::ranges::max_element(plan.ranks, {}, &RankBytes::total),
                  .reduced_bytes = plan.comm_bytes_per_step,
                  .gathered_bytes = plan.gather_bytes_per_step};
  if (capacity.device > 0 || capacity.host > 0) {
    row.fits = !overrun(plan, capacity).has_value();
  }
  return row;
}

/// Plans layouts one by one and keeps each that differs from those before.
class Estimator {
 public:
  Estimator(const EstimateRequest& request, const Config& base, Estimate& result)
      : request_(request), base_(base), result_(result) {}

  void plan_world(std::int64_t world) {
    world_ = world;
    Sets sets;
    if (base_.parallel.data != world) {
      sets.emplace_back("parallel.data=auto");
    }
    if (!request_.sweep_parallel) {
      add(sets);
      return;
    }
    if (result_.global_batch % world != 0) {
      result_.impossible.push_back(
          {world,
           sets,
           fmt::format("{} samples of a step do not divide by {} processes [batch-mismatch]",
                       result_.global_batch,
                       world)});
      return;
    }
    for (const Sets& policy : policies(result_.capacity.device > 0, world)) {
      for (const std::int64_t micro : micro_batches(result_.global_batch / world)) {
        plan_recomputation(sets, policy, micro);
      }
    }
  }

 private:
  void plan_recomputation(const Sets& sets, const Sets& policy, std::int64_t micro) {
    for (const char* recompute : {"", "none", "selective", "full"}) {
      Sets all = sets;
      all.insert(all.end(),
                 {fmt::format("train.global_batch_size={}", result_.global_batch),
                  fmt::format("train.micro_batch_size={}", micro),
                  "train.gradient_accumulation=null"});
      all.insert(all.end(), policy.begin(), policy.end());
      if (*recompute != '\0') {
        all.push_back(fmt::format("train.activation_checkpoint={}", recompute));
      }
      add(std::move(all));
    }
  }

  void add(Sets sets) {
    LoadOptions options = request_.options;
    options.world_size = world_;
    options.world_origin = fmt::format("--world-size {}", world_);
    for (const std::string& set : sets) {
      options.overrides.push_back({set});
    }
    Loaded loaded = load(request_.config, options);
    if (loaded.has_errors()) {
      const auto first =
          std::ranges::find(loaded.diagnostics, Diagnostic::Severity::error, &Diagnostic::severity);
      result_.impossible.push_back(
          {world_, std::move(sets), fmt::format("{} [{}]", first->message, first->id)});
      return;
    }
    Config& config = loaded.config;
    if (config.model.vocab_size == 0) {
      config.model.vocab_size = base_.model.vocab_size;  // its tokenizer has been read
    }
    if (!seen_.insert({world_, config_hash(config)}).second) {
      return;  // as the configuration is written, or with another micro-batch already
    }
    set_planned_threads(config);
    EstimateRow& row =
        result_.rows.emplace_back(row_of(config, make_plan(config, 0), result_.capacity));
    row.sets = std::move(sets);
  }

  const EstimateRequest& request_;
  const Config& base_;
  Estimate& result_;
  std::int64_t world_ = 1;
  std::set<std::pair<std::int64_t, std::string>> seen_;
};

}  // namespace

Estimate estimate(const EstimateRequest& request, const Config& base) {
  Estimate result{.name = base.run.name,
                  .global_batch = base.train.global_batch_size,
                  .capacity = capacity_of(base),
                  .rows = {},
                  .impossible = {}};
  Estimator estimator(request, base, result);
  for (const std::int64_t world : request.worlds) {
    estimator.plan_world(world);
  }
  std::ranges::stable_sort(result.rows, {}, [](const EstimateRow& row) {
    return std::tuple(row.world, row.bytes.total(), row.bytes.host.total());
  });
  return result;
}

}  // namespace colossal
