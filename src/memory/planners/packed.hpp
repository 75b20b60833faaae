// Which chunks does each memory policy make, and where do they live? One packing, and a rule per
// policy.
#pragma once

#include "memory/chunk_plan.hpp"

#include <memory>

namespace colossal {

/// zero.stage 0: every rank holds everything; gradients are all-reduced once a step.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_replicated_planner(
    const ChunkPlannerRequest& request);
/// zero.stage 1: masters and optimizer states are cut into equal parts; gradients are
/// reduce-scattered once a step, new weights gathered.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_sharded_optimizer_planner(
    const ChunkPlannerRequest& request);
/// zero.stage 2: gradients too; they are reduce-scattered after each micro-batch.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_sharded_gradient_planner(
    const ChunkPlannerRequest& request);
/// zero.stage 3: weights too; they are gathered for each block's forward and backward. A chunk
/// holds parameters of one block.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_sharded_weight_planner(
    const ChunkPlannerRequest& request);
/// gemini.placement static: by shard_param_frac, offload_optim_frac and offload_param_frac of all
/// bytes, in chunk order. Source: ColossalAI's static placement (zero-gemini-elixir 9).
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_static_planner(const ChunkPlannerRequest& request);
/// gemini.placement cuda: static(1, 0, 0).
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_device_planner(const ChunkPlannerRequest& request);
/// gemini.placement cpu: static(1, 1, 1).
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_host_planner(const ChunkPlannerRequest& request);
/// gemini.placement const: all in host memory; gathered weights stay within const_budget.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_budget_planner(const ChunkPlannerRequest& request);
/// gemini.placement auto: all in host memory until the first step was measured.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_measured_planner(
    const ChunkPlannerRequest& request);

}  // namespace colossal
