// What do a plan, a run and an evaluation have in common? Built here once, so that they cannot
// disagree.
#include "train/model.hpp"

#include "checkpoint/checkpoint.hpp"
#include "config/load.hpp"
#include "models/zoo.hpp"
#include "train/recompute.hpp"
#include "train/records.hpp"

#include <utility>

namespace colossal {

ModelParts make_model(const Config& config, const ParallelContext& context) {
  ModelParts parts{
      .layers = serial_factory(context, layer_recompute(config.train.activation_checkpoint)),
      .names = {},
      .blocks = {}};
  const std::unique_ptr<ModelBuilder> builder =
      zoo().make(yaml_word(config.model.type), config.model);
  for (const BlockDef& def : builder->blocks(*parts.layers)) {
    parts.names.push_back(def.name);
    parts.blocks.push_back(def.build());
  }
  return parts;
}

ParamUses param_uses(std::span<const std::unique_ptr<Block>> blocks) {
  std::vector<std::vector<Parameter*>> parameters;
  parameters.reserve(blocks.size());
  for (const std::unique_ptr<Block>& block : blocks) {
    parameters.push_back(block->parameters());
  }
  return list_uses(parameters);
}

std::unique_ptr<ChunkPlanner> make_planner(std::span<const std::unique_ptr<Block>> blocks,
                                           const Config& config) {
  const auto item_bytes = static_cast<std::int64_t>(at::elementSize(dtype(config.train.precision)));
  ChunkPlannerRequest request{.item_bytes = item_bytes, .zero = config.parallel.zero};
  request.chunk_bytes = config.parallel.zero.bucket_size.value_or(
      default_chunk_bytes(num_parameters(blocks) * item_bytes));
  if (config.parallel.gemini) {
    request.gemini = *config.parallel.gemini;
    request.chunk_bytes = config.parallel.gemini->chunk_size.value_or(request.chunk_bytes);
  }
  return chunk_planners().make(memory_policy(config.parallel), request);
}

LiveModel build_model(const Config& config,
                      const ParallelContext& context,
                      std::span<const std::string_view> optimizer_states) {
  ModelParts parts = make_model(config, context);
  LiveModel model{std::move(parts.layers), std::move(parts.blocks), nullptr, nullptr};
  std::vector<ChunkStore::Block> owned;
  owned.reserve(model.blocks.size());
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    owned.push_back({std::move(parts.names[i]), model.blocks[i]->parameters()});
  }
  const std::unique_ptr<ChunkPlanner> planner = make_planner(model.blocks, config);
  StoreOptions options = store_options(config);
  options.lend_grads = context.device().is_cuda();
  model.store = std::make_unique<ChunkStore>(owned, *planner, optimizer_states, options, context);
  model.stage = std::make_unique<BlockStage>(
      model.blocks, *model.store, context, config.train.activation_checkpoint);
  return model;
}

LiveModel load_model(const Config& config,
                     const ParallelContext& context,
                     const std::filesystem::path& checkpoint,
                     const Comm& world) {
  LiveModel model = build_model(config, context);
  std::vector<TensorRecord> records =
      make_records(model.store->shards(), model.store->parameters(), context.mesh());
  load_tensors(checkpoint, records, world);
  model.store->publish_masters();
  return model;
}

}  // namespace colossal
