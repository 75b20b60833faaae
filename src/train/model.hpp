// What do a plan, a run and an evaluation have in common? The blocks of the configuration and the
// memory policy.
#pragma once

#include "config/config.hpp"
#include "memory/chunk_store.hpp"
#include "mesh/context.hpp"
#include "nn/block.hpp"
#include "nn/layers.hpp"
#include "train/stage.hpp"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

/// Which block uses which parameter.
[[nodiscard]] ParamUses param_uses(std::span<const std::unique_ptr<Block>> blocks);

/// The planner of the configured memory policy (parallel.zero, parallel.gemini).
[[nodiscard]] std::unique_ptr<ChunkPlanner> make_planner(
    std::span<const std::unique_ptr<Block>> blocks, const Config& config);

/// A model with its memory and the stage that runs it: what training and evaluation share. Members
/// in order of construction.
struct LiveModel {
  std::unique_ptr<LayerFactory> layers;
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<ChunkStore> store;
  std::unique_ptr<BlockStage> stage;
};

/// Allocates and initialises the model of this rank's stage; `optimizer_states`: names of what is
/// kept beside each weight. `context` must outlive it. Errors: config; memory "out-of-memory".
[[nodiscard]] LiveModel build_model(const Config& config,
                                    const ParallelContext& context,
                                    std::span<const std::string_view> optimizer_states = {});

/// The model of a checkpoint without optimizer state: only the tensors "model/*" are read.
/// Collective over `world`. Errors: those of build_model() and load_tensors().
[[nodiscard]] LiveModel load_model(const Config& config,
                                   const ParallelContext& context,
                                   const std::filesystem::path& checkpoint,
                                   const Comm& world);

}  // namespace colossal
