// How is memory planned without any sharding? Every rank holds everything; gradients are
// all-reduced.
#pragma once

#include "memory/chunk_plan.hpp"

#include <memory>

namespace colossal {

/// Next-fit packing in order of the last use in backward, so that a chunk is complete as early as
/// possible. A parameter longer than the target gets its own chunk; parameters of one chunk are
/// summed over the same axes.
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_replicated_planner(
    const ChunkPlannerRequest& request);

}  // namespace colossal
