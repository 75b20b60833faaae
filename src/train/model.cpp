// What do a plan and a run have in common? Built here once, so that they cannot disagree.
#include "train/model.hpp"

#include "config/load.hpp"
#include "models/zoo.hpp"

namespace colossal {

ModelParts make_model(const Config& config, const ParallelContext& context) {
  ModelParts parts{.layers = serial_factory(context), .names = {}, .blocks = {}};
  const std::unique_ptr<ModelBuilder> builder =
      zoo().make(yaml_word(config.model.type), config.model);
  for (const BlockDef& def : builder->blocks(*parts.layers)) {
    parts.names.push_back(def.name);
    parts.blocks.push_back(def.build());
  }
  return parts;
}

std::unique_ptr<ChunkPlanner> make_planner(std::span<const std::unique_ptr<Block>> blocks,
                                           at::ScalarType dtype) {
  const auto item_bytes = static_cast<std::int64_t>(at::elementSize(dtype));
  return chunk_planners().make(
      "replicated",
      {.chunk_bytes = default_chunk_bytes(num_parameters(blocks) * item_bytes),
       .item_bytes = item_bytes});
}

}  // namespace colossal
