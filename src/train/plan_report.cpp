// What will a run do and need? The formulas; the same planner and blocks as the run itself.
#include "train/plan_report.hpp"

#include "config/load.hpp"
#include "config/schedule.hpp"
#include "memory/chunk_plan.hpp"
#include "models/zoo.hpp"
#include "optim/optimizer.hpp"
#include "optim/scheduler.hpp"
#include "train/human.hpp"
#include "train/model.hpp"
#include "train/recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace colossal {
namespace {

/// Sums over the blocks of this rank's stage for one micro-batch.
struct StageCost {
  double flops = 0;
  std::int64_t activation_bytes = 0;
};

StageCost stage_cost(const Config& config, std::span<const std::unique_ptr<Block>> blocks) {
  const BatchShape shape{.batch = config.train.micro_batch_size,
                         .sequence = config.data.seq_length};
  StageCost sum;
  std::int64_t largest_boundary = 0;
  std::vector<BlockCost> costs;
  for (const std::unique_ptr<Block>& block : blocks) {
    const BlockCost& cost = costs.emplace_back(block->cost(shape));
    sum.flops += cost.forward_flops + cost.backward_flops;
    largest_boundary = std::max(largest_boundary, cost.boundary_bytes);
  }
  const std::vector<int> segments =
      recompute_segments(config.train.activation_checkpoint, blocks, shape);
  // and the gradient that travels back
  sum.activation_bytes = activation_peak(segments, costs) + largest_boundary;
  return sum;
}

/// Prefetched micro-batches: labels of 8 bytes, tokens and perhaps document starts of 8 each, or
/// features of 4 bytes.
std::int64_t loader_bytes(const Config& config) {
  const std::int64_t fields = config.data.cross_document_attention ? 2 : 3;
  const bool rows = config.model.type == ModelType::mlp;
  const std::int64_t token_bytes = rows ? 8 + 4 * config.model.in_features : 8 * fields;
  return config.data.prefetch * config.train.micro_batch_size * config.data.seq_length *
         token_bytes;
}

void fill_model(PlanReport& plan, const ModelConfig& model) {
  switch (model.type) {
    case ModelType::gpt:
      plan.unit = "tokens";
      plan.vocab = model.vocab_size;
      plan.padded_vocab = padded_vocab(model);
      plan.model_note = fmt::format("vocab {} -> {}", plan.vocab, plan.padded_vocab);
      return;
    case ModelType::mlp:
      plan.unit = "rows";
      plan.model_note =
          fmt::format("{} features -> {} classes", model.in_features, model.out_features);
      return;
  }
}

/// "lr 0.001: 5 steps of warm-up, then ...".
std::string schedule_in_words(const Config& config, std::int64_t steps) {
  const double lr = effective_lr(config);
  const bool scaled = config.optimizer.lr_scaling != LrScaling::none;
  const std::string why = scaled ? fmt::format(" ({:.4g} for a batch of {}, scaled to {})",
                                               config.optimizer.lr,
                                               config.optimizer.base_batch_size.value_or(0),
                                               config.train.global_batch_size)
                                 : "";
  return fmt::format("lr {:.4g}{}: {}", lr, why, Scheduler(config.scheduler, lr, steps).in_words());
}

void fill_batch(PlanReport& plan, const Config& config, std::int64_t train_samples) {
  plan.global_batch = config.train.global_batch_size;
  plan.micro_batch = config.train.micro_batch_size;
  plan.accumulation = config.train.gradient_accumulation;
  plan.tokens_per_step = plan.global_batch * config.data.seq_length;
  if (config.train.epochs && train_samples == 0) {
    return;  // an epoch's length is in the data
  }
  plan.total_steps = total_steps(config, train_samples);
  plan.schedule = schedule_in_words(config, plan.total_steps);
  const std::int64_t samples = plan.total_steps * plan.global_batch;
  if (config.train.tokens && *config.train.tokens != samples * config.data.seq_length) {
    plan.steps_note = "rounded up from " + thousands(*config.train.tokens) + " tokens";
  } else if (config.train.samples && *config.train.samples != samples) {
    plan.steps_note = "rounded up from " + thousands(*config.train.samples) + " samples";
  }
}

/// Chunks are equal on all ranks as long as no axis shards parameters, and so are the bytes.
void fill_chunks(PlanReport& plan,
                 const ChunkPlan& chunks,
                 std::int64_t item_bytes,
                 const Mesh& mesh) {
  plan.num_chunks = static_cast<std::int64_t>(chunks.chunks.size());
  for (const ChunkSpec& chunk : chunks.chunks) {
    const std::int64_t bytes = chunk.numel * item_bytes;
    plan.chunk_bytes = std::max(plan.chunk_bytes, bytes);
    plan.comm_bytes_per_step += mesh.size(chunk.reduce_axes) > 1 ? bytes : 0;
  }
}

RankBytes rank_bytes(const ParamUses& uses,
                     const ChunkPlan& chunks,
                     std::int64_t item_bytes,
                     std::int64_t num_states,
                     const Mesh& mesh) {
  RankBytes bytes{.rank = mesh.rank()};
  for (const ParamSpec& spec : uses.specs) {
    const bool owned = spec.tied_to.empty();
    bytes.parameters += owned ? numel(local_shape(spec.layout, spec.padded, mesh)) : 0;
  }
  for (const ChunkSpec& chunk : chunks.chunks) {
    bytes.weights += chunk.numel * item_bytes;
    bytes.grads += chunk.numel * item_bytes;
    bytes.optimizer += chunk.numel * item_bytes * num_states;
  }
  return bytes;
}

}  // namespace

PlanReport make_plan(const Config& config, std::int64_t train_samples) {
  const ParallelContext alone(config);  // blocks need a context; nothing communicates
  const ModelParts model = make_model(config, alone);
  const std::unique_ptr<ChunkPlanner> planner = make_planner(model.blocks, config);
  const ParamUses uses = param_uses(model.blocks);
  const StageCost cost = stage_cost(config, model.blocks);
  const auto item_bytes = static_cast<std::int64_t>(at::elementSize(alone.dtype()));
  const auto num_states = static_cast<std::int64_t>(
      optimizers().make(yaml_word(config.optimizer.type), config.optimizer)->states().size());

  PlanReport plan;
  plan.name = config.run.name;
  fill_batch(plan, config, train_samples);
  const MeshShape shape = mesh_shape(config.parallel);
  const Mesh first(shape, 0);
  plan.world = first.world_size();
  plan.data = first.size(data_axes());
  plan.pipeline = first.size(Axis::pp);
  plan.sequence = first.size(Axis::sp);
  plan.tensor = first.size(axes({Axis::t0, Axis::t1, Axis::t2}));
  fill_model(plan, config.model);
  plan.parameters = num_parameters(model.blocks);
  plan.flops_per_step = cost.flops * static_cast<double>(plan.accumulation * plan.data);
  plan.checkpoint_bytes = plan.parameters * item_bytes * (1 + num_states);
  plan.keep_last = config.checkpoint.keep_last;
  fill_chunks(plan, planner->plan(uses.specs, uses.blocks, first), item_bytes, first);
  for (int rank = 0; rank < plan.world; ++rank) {
    const Mesh mesh(shape, rank);
    const ChunkPlan chunks = planner->plan(uses.specs, uses.blocks, mesh);
    RankBytes bytes = rank_bytes(uses, chunks, item_bytes, num_states, mesh);
    bytes.activations = cost.activation_bytes;
    bytes.buffers = loader_bytes(config);
    plan.ranks.push_back(bytes);
  }
  return plan;
}

}  // namespace colossal
