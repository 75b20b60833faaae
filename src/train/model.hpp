// What do a plan and a run have in common? The blocks of the configuration and the memory policy.
#pragma once

#include "config/config.hpp"
#include "memory/chunk_plan.hpp"
#include "mesh/context.hpp"
#include "nn/block.hpp"
#include "nn/layers.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// The model of a configuration: specs only, no memory. Members in order of construction.
struct ModelParts {
  std::unique_ptr<LayerFactory> layers;
  std::vector<std::string> names;  ///< of the blocks
  std::vector<std::unique_ptr<Block>> blocks;
};

/// Builds the blocks of this rank's stage; `context` must outlive them. Errors: config.
[[nodiscard]] ModelParts make_model(const Config& config, const ParallelContext& context);

/// The planner of the configured memory policy ("replicated": every rank holds everything).
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_planner(
    std::span<const std::unique_ptr<Block>> blocks, at::ScalarType dtype);

}  // namespace colossal
