// Which models exist, and how does a model section become blocks?
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"
#include "nn/block.hpp"
#include "nn/layers.hpp"

namespace colossal {

/// Builds the blocks of one model type. Reads like the paper's figure; knows no collective, device,
/// dtype or rank.
class ModelBuilder {
 public:
  virtual ~ModelBuilder() = default;
  /// Blocks in forward order; layers are asked from `layers`, which must outlive the blocks.
  [[nodiscard]] virtual ModelDef blocks(LayerFactory& layers) const = 0;
};

/// Table by model.type: gpt, mlp.
[[nodiscard]] const Registry<ModelBuilder, const ModelConfig&>& zoo();

/// Parameters counted once (tied ones only at their owner), in elements of logical shapes.
[[nodiscard]] std::int64_t num_parameters(std::span<const std::unique_ptr<Block>> blocks);

}  // namespace colossal
