// In which order do parameters fill chunks? In the order in which backward finishes with them.
#include "memory/planners/replicated.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

std::int64_t aligned(std::int64_t numel) {
  return (numel + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
}

/// A parameter that owns memory, and the block after whose backward nothing more is added to its
/// gradient.
struct Owner {
  int param = 0;
  int last_block = 0;
};

/// Owners in the order in which backward, from the last block to the first, finishes with them.
std::vector<Owner> backward_order(std::span<const ParamSpec> params,
                                  std::span<const std::vector<int>> blocks) {
  const std::vector<int> owner_of = owner_indices(params);
  const auto unused = static_cast<int>(blocks.size());
  std::vector<int> first_use(params.size(), unused);
  for (int block = unused - 1; block >= 0; --block) {
    for (const int param : blocks[static_cast<std::size_t>(block)]) {
      first_use[static_cast<std::size_t>(owner_of[static_cast<std::size_t>(param)])] = block;
    }
  }
  std::vector<Owner> order;
  for (std::size_t i = params.size(); i-- > 0;) {
    if (owner_of[i] != static_cast<int>(i)) {
      continue;
    }
    check(first_use[i] < unused,
          ErrorKind::internal,
          "param-unused",
          "parameter '{}' is used by no block",
          params[i].name);
    order.push_back({static_cast<int>(i), first_use[i]});
  }
  std::ranges::stable_sort(order, std::ranges::greater(), &Owner::last_block);
  return order;
}

class ReplicatedPlanner : public ChunkPlanner {
 public:
  explicit ReplicatedPlanner(const ChunkPlannerRequest& request)
      : target_numel_(request.chunk_bytes / request.item_bytes) {}

  [[nodiscard]] ChunkPlan plan(std::span<const ParamSpec> params,
                               std::span<const std::vector<int>> blocks,
                               const Mesh& mesh) const override {
    ChunkPlan plan;
    for (const Owner& owner : backward_order(params, blocks)) {
      const ParamSpec& spec = params[static_cast<std::size_t>(owner.param)];
      const std::int64_t length = aligned(numel(local_shape(spec.layout, spec.padded, mesh)));
      if (plan.chunks.empty() || !fits(plan.chunks.back(), spec, length)) {
        plan.chunks.emplace_back().reduce_axes = spec.layout.replicated;
      }
      ChunkSpec& chunk = plan.chunks.back();
      chunk.params.push_back(owner.param);
      chunk.offsets.push_back(chunk.numel);
      chunk.numel += length;
    }
    return plan;
  }

 private:
  [[nodiscard]] bool fits(const ChunkSpec& chunk,
                          const ParamSpec& spec,
                          std::int64_t length) const {
    return chunk.reduce_axes == spec.layout.replicated && chunk.numel + length <= target_numel_;
  }

  std::int64_t target_numel_;
};

}  // namespace

std::unique_ptr<ChunkPlanner> make_replicated_planner(const ChunkPlannerRequest& request) {
  return std::make_unique<ReplicatedPlanner>(request);
}

}  // namespace colossal
