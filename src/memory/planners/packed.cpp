// In which order do parameters fill chunks, and what do policies say of the result? Next-fit, in
// the order in which backward finishes with parameters.
#include "memory/planners/packed.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace colossal {
namespace {

std::int64_t rounded_up(std::int64_t numel, std::int64_t multiple) {
  return (numel + multiple - 1) / multiple * multiple;
}

/// A parameter that owns memory, and the blocks of its first and last use in forward.
struct Owner {
  int param = 0;
  int first_block = 0;  ///< after its backward nothing more is added to the gradient
  int last_block = 0;
};

/// Owners in the order in which backward, from the last block to the first, finishes with them.
std::vector<Owner> backward_order(std::span<const ParamSpec> params,
                                  std::span<const std::vector<int>> blocks) {
  const std::vector<int> owner_of = owner_indices(params);
  const auto unused = static_cast<int>(blocks.size());
  std::vector<Owner> uses(params.size(), Owner{.param = 0, .first_block = unused});
  for (int block = unused - 1; block >= 0; --block) {
    for (const int param : blocks[static_cast<std::size_t>(block)]) {
      Owner& owner = uses[static_cast<std::size_t>(owner_of[static_cast<std::size_t>(param)])];
      owner.last_block = owner.first_block == unused ? block : owner.last_block;
      owner.first_block = block;
    }
  }
  std::vector<Owner> order;
  for (std::size_t i = params.size(); i-- > 0;) {
    if (owner_of[i] != static_cast<int>(i)) {
      continue;
    }
    check(uses[i].first_block < unused,
          ErrorKind::internal,
          "param-unused",
          "parameter '{}' is used by no block",
          params[i].name);
    uses[i].param = static_cast<int>(i);
    order.push_back(uses[i]);
  }
  std::ranges::stable_sort(order, std::ranges::greater(), &Owner::first_block);
  return order;
}

/// How chunks are made; what else a policy decides is done to the finished plan.
struct Packing {
  std::int64_t target_numel = 0;
  bool shard = false;
  bool one_block = false;  ///< a chunk holds parameters of one block only
  bool searches = false;   ///< target_numel to twice as much: the length with the least waste
};

std::int64_t length_of(const ParamSpec& spec, const Mesh& mesh) {
  return rounded_up(numel(local_shape(spec.layout, spec.padded, mesh)), kChunkAlignment);
}

/// The length of chunks: the target, or what the search finds between it and its double.
std::int64_t chunk_numel(const Packing& packing,
                         const std::vector<Owner>& order,
                         std::span<const ParamSpec> params,
                         const Mesh& mesh) {
  if (!packing.searches) {
    return packing.target_numel;
  }
  constexpr std::int64_t kInterval = 1024;
  constexpr std::int64_t kMaxSteps = 100'000'000;  // of packing: a blink, however large the model
  std::vector<std::int64_t> lengths;
  for (const Owner& owner : order) {
    lengths.push_back(length_of(params[static_cast<std::size_t>(owner.param)], mesh));
  }
  const std::int64_t tries = std::max<std::int64_t>(1, kMaxSteps / std::ssize(lengths));
  return search_chunk_numel(
      lengths,
      {.min_numel = packing.target_numel,
       .range = packing.target_numel,
       .interval = rounded_up(std::max(packing.target_numel / tries, kInterval), kInterval)});
}

/// Fills chunks one after the other.
class Packer {
 public:
  Packer(const Packing& packing, std::int64_t target_numel, const Mesh& mesh)
      : packing_(packing), target_numel_(target_numel), mesh_(mesh) {}

  void add(const Owner& owner, const ParamSpec& spec) {
    const std::int64_t length = length_of(spec, mesh_);
    if (plan_.chunks.empty() || !fits(owner, spec, length)) {
      close();
      ChunkSpec& chunk = plan_.chunks.emplace_back();
      chunk.reduce_axes = spec.layout.replicated;
      chunk.shard_axes = packing_.shard ? chunk.reduce_axes : AxisSet{};
      opened_by_ = owner;
    }
    ChunkSpec& chunk = plan_.chunks.back();
    chunk.params.push_back(owner.param);
    chunk.offsets.push_back(chunk.numel);
    chunk.numel += length;
  }

  ChunkPlan finish() {
    close();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool fits(const Owner& owner, const ParamSpec& spec, std::int64_t length) const {
    const ChunkSpec& chunk = plan_.chunks.back();
    const bool same_blocks =
        owner.first_block == opened_by_.first_block && owner.last_block == opened_by_.last_block;
    return chunk.reduce_axes == spec.layout.replicated && (same_blocks || !packing_.one_block) &&
           chunk.numel + length <= target_numel_;
  }

  /// Every rank's part of the finished chunk is equally long and aligned.
  void close() {
    if (!plan_.chunks.empty()) {
      ChunkSpec& chunk = plan_.chunks.back();
      chunk.numel = rounded_up(chunk.numel, kChunkAlignment * mesh_.size(chunk.shard_axes));
    }
  }

  const Packing& packing_;
  std::int64_t target_numel_;
  const Mesh& mesh_;
  Owner opened_by_;
  ChunkPlan plan_;
};

using Policy = std::function<void(ChunkPlan&)>;

class PackedPlanner : public ChunkPlanner {
 public:
  PackedPlanner(const Packing& packing, Policy policy)
      : packing_(packing), policy_(std::move(policy)) {}

  [[nodiscard]] ChunkPlan plan(std::span<const ParamSpec> params,
                               std::span<const std::vector<int>> blocks,
                               const Mesh& mesh) const override {
    const std::vector<Owner> order = backward_order(params, blocks);
    Packer packer(packing_, chunk_numel(packing_, order, params, mesh), mesh);
    for (const Owner& owner : order) {
      packer.add(owner, params[static_cast<std::size_t>(owner.param)]);
    }
    ChunkPlan plan = packer.finish();
    policy_(plan);
    return plan;
  }

 private:
  Packing packing_;
  Policy policy_;
};

void move_optimizer(ChunkPlan& plan, Tier home) {
  for (ChunkSpec& chunk : plan.chunks) {
    chunk.optim_home = home;
  }
}

void cut_weights(ChunkPlan& plan, Tier home) {
  for (ChunkSpec& chunk : plan.chunks) {
    chunk.resident = false;
    chunk.param_home = home;
  }
}

std::unique_ptr<ChunkPlanner> zero_planner(const ChunkPlannerRequest& request, std::int64_t stage) {
  const Packing packing{.target_numel = request.chunk_bytes / request.item_bytes,
                        .shard = stage > 0,
                        .one_block = stage == 3};
  return std::make_unique<PackedPlanner>(packing, [zero = request.zero, stage](ChunkPlan& plan) {
    plan.shard_grads = stage >= 2;
    if (zero.offload != Offload::none) {
      move_optimizer(plan, Tier::host);
    }
    if (stage == 3) {
      plan.prefetch = zero.prefetch;
      cut_weights(plan, zero.offload == Offload::optimizer_params ? Tier::host : Tier::device);
    }
  });
}

/// Calls `act` for chunks in order until they hold this share of all elements.
template <class Act>
void for_share(ChunkPlan& plan, double share, const Act& act) {
  std::int64_t total = 0;
  for (const ChunkSpec& chunk : plan.chunks) {
    total += chunk.numel;
  }
  std::int64_t sum = 0;
  for (ChunkSpec& chunk : plan.chunks) {
    if (static_cast<double>(sum) >= share * static_cast<double>(total)) {
      return;
    }
    act(chunk);
    sum += chunk.numel;
  }
}

/// Optimizer states of this share of the chunks go to disk; masters and gradients stay where they
/// are.
void move_to_disk(ChunkPlan& plan, double share) {
  for_share(plan, share, [](ChunkSpec& chunk) { chunk.states_on_disk = true; });
}

std::unique_ptr<ChunkPlanner> gemini_planner(const ChunkPlannerRequest& request, Policy policy) {
  const Packing packing{.target_numel = request.chunk_bytes / request.item_bytes,
                        .shard = true,
                        .one_block = false,
                        .searches = !request.gemini.chunk_size};
  return std::make_unique<PackedPlanner>(
      packing,
      [prefetch = request.zero.prefetch,
       on_disk = request.gemini.nvme ? request.gemini.nvme->fraction : 0.0,
       policy = std::move(policy)](ChunkPlan& plan) {
        plan.shard_grads = true;
        plan.prefetch = prefetch;
        policy(plan);
        move_to_disk(plan, on_disk);
      });
}

struct Fractions {
  double shard_param = 1;
  double offload_optim = 0;
  double offload_param = 0;
};

std::unique_ptr<ChunkPlanner> fraction_planner(const ChunkPlannerRequest& request,
                                               const Fractions& fractions) {
  return gemini_planner(request, [fractions](ChunkPlan& plan) {
    cut_weights(plan, Tier::device);
    for_share(plan, 1 - fractions.shard_param, [](ChunkSpec& chunk) { chunk.resident = true; });
    for_share(
        plan, fractions.offload_optim, [](ChunkSpec& chunk) { chunk.optim_home = Tier::host; });
    for_share(
        plan, fractions.offload_param, [](ChunkSpec& chunk) { chunk.param_home = Tier::host; });
  });
}

}  // namespace

std::unique_ptr<ChunkPlanner> make_replicated_planner(const ChunkPlannerRequest& request) {
  return zero_planner(request, 0);
}

std::unique_ptr<ChunkPlanner> make_sharded_optimizer_planner(const ChunkPlannerRequest& request) {
  return zero_planner(request, 1);
}

std::unique_ptr<ChunkPlanner> make_sharded_gradient_planner(const ChunkPlannerRequest& request) {
  return zero_planner(request, 2);
}

std::unique_ptr<ChunkPlanner> make_sharded_weight_planner(const ChunkPlannerRequest& request) {
  return zero_planner(request, 3);
}

std::unique_ptr<ChunkPlanner> make_static_planner(const ChunkPlannerRequest& request) {
  return fraction_planner(request,
                          {.shard_param = request.gemini.shard_param_frac,
                           .offload_optim = request.gemini.offload_optim_frac,
                           .offload_param = request.gemini.offload_param_frac});
}

std::unique_ptr<ChunkPlanner> make_device_planner(const ChunkPlannerRequest& request) {
  return fraction_planner(request, {.shard_param = 1, .offload_optim = 0, .offload_param = 0});
}

std::unique_ptr<ChunkPlanner> make_host_planner(const ChunkPlannerRequest& request) {
  return fraction_planner(request, {.shard_param = 1, .offload_optim = 1, .offload_param = 1});
}

std::unique_ptr<ChunkPlanner> make_budget_planner(const ChunkPlannerRequest& request) {
  return gemini_planner(request, [budget = request.gemini.const_budget](ChunkPlan& plan) {
    cut_weights(plan, Tier::host);
    move_optimizer(plan, Tier::host);
    plan.cache_bytes = budget;
  });
}

std::unique_ptr<ChunkPlanner> make_measured_planner(const ChunkPlannerRequest& request) {
  const MeasuredBudget budget{.steady_ratio = request.gemini.steady_cuda_cap_ratio,
                              .margin_ratio = request.gemini.margin_ratio,
                              .reserve = request.gemini.reserve};
  return gemini_planner(request, [budget](ChunkPlan& plan) {
    cut_weights(plan, Tier::host);
    move_optimizer(plan, Tier::host);
    plan.measured = budget;
  });
}

}  // namespace colossal
