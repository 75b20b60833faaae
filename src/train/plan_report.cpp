// What will a run do and need? The formulas; the same planner and blocks as the run itself.
#include "train/plan_report.hpp"

#include "config/batch_sizes.hpp"
#include "config/load.hpp"
#include "config/schedule.hpp"
#include "memory/accounting.hpp"
#include "models/zoo.hpp"
#include "nn/functions.hpp"
#include "optim/optimizer.hpp"
#include "optim/scheduler.hpp"
#include "train/capacity.hpp"
#include "train/human.hpp"
#include "train/model.hpp"
#include "train/recompute.hpp"
#include "train/trainer.hpp"

#include <c10/core/Device.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace colossal {
namespace {

/// What the blocks of this rank's stage do and hold for one micro-batch.
struct StageCost {
  double flops = 0;
  std::vector<BlockActivations> activations;
  std::int64_t evaluation_bytes = 0;  ///< of activations, at most
  std::int64_t host_bytes = 0;        ///< of inputs in host memory
};

/// What a block holds while it runs without autograd: at most what it would keep, and its result.
std::int64_t evaluation_bytes(const Config& config,
                              std::span<const std::unique_ptr<Block>> blocks) {
  const BatchShape shape{.batch = config.eval.micro_batch_size, .sequence = config.data.seq_length};
  std::int64_t most = 0;
  for (const std::unique_ptr<Block>& block : blocks) {
    const BlockCost cost = block->cost(shape);
    most = std::max(most, cost.activation_bytes + cost.boundary_bytes + cost.forward_bytes);
  }
  return most;
}

StageCost stage_cost(const Config& config, std::span<const std::unique_ptr<Block>> blocks) {
  const BatchShape shape{.batch = config.train.micro_batch_size,
                         .sequence = config.data.seq_length};
  StageCost sum;
  std::vector<BlockCost> costs;
  for (const std::unique_ptr<Block>& block : blocks) {
    const BlockCost& cost = costs.emplace_back(block->cost(shape));
    sum.flops += cost.forward_flops + cost.backward_flops;
  }
  const ActivationCheckpointConfig& recompute = config.train.activation_checkpoint;
  const std::vector<int> segments = recompute_segments(recompute, blocks, shape);
  sum.activations = block_activations(segments, costs, recompute.offload);
  sum.host_bytes = recompute.offload == InputOffload::cpu ? host_input_bytes(segments, costs) : 0;
  const bool evaluates =
      config.eval.at_end.value_or(false) || config.eval.every_steps || config.eval.at_start;
  sum.evaluation_bytes = evaluates ? evaluation_bytes(config, blocks) : 0;
  return sum;
}

/// Micro-batches on the device: prefetched ones, where a CPU's workers do so, else those of a step.
/// Labels of 8 bytes, tokens and perhaps document starts of 8 each, or features of 4 bytes.
std::int64_t loader_bytes(const Config& config, bool host_apart) {
  const bool ahead = !host_apart && config.data.workers > 0;
  const std::int64_t count = ahead ? config.data.prefetch : config.train.gradient_accumulation;
  const std::int64_t fields = config.data.cross_document_attention ? 2 : 3;
  const bool rows = config.model.type == ModelType::mlp;
  const std::int64_t token_bytes = rows ? 8 + 4 * config.model.in_features : 8 * fields;
  return count * config.train.micro_batch_size * config.data.seq_length * token_bytes;
}

/// What products hold on a GPU whatever the sizes. Layers of 16 bits also multiply by torch where
/// attention has no kernel, or rows are no whole packs, as a number of classes may not be.
std::int64_t workspace_bytes(const Config& config, at::ScalarType dtype) {
  const ModelConfig& model = config.model;
  const kernels::AttentionShape heads{
      model.num_heads,
      model.num_kv_heads,
      model.hidden_size / std::max<std::int64_t>(model.num_heads, 1)};
  constexpr std::int64_t kPack = 8;  // elements
  const auto broken_by = [](std::int64_t size) { return size % kPack != 0; };
  const bool broken = broken_by(model.hidden_size) || broken_by(model.ffn_hidden_size) ||
                      broken_by(padded_vocab(model)) ||
                      broken_by(config.train.micro_batch_size * config.data.seq_length);
  const bool math = model.attention == AttentionKind::math || model.attention_dropout > 0;
  const bool torch_too =
      model.type == ModelType::mlp || broken || math ||
      kernels::attends_by_products(heads, dtype, !config.data.cross_document_attention);
  return gpu_workspace_bytes(dtype, torch_too);
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

/// "8 to 64 samples by 8 over 10,000 samples: 312 smaller steps"; empty without a ramp.
std::string ramp_in_words(const TrainConfig& train) {
  const auto& ramp = train.batch_ramp;
  return ramp ? fmt::format("{} to {} samples by {} over {} samples: {}",
                            ramp->start,
                            train.global_batch_size,
                            ramp->increment,
                            thousands(ramp->samples),
                            counted(BatchSizes(train).ramp_steps(), "smaller step"))
              : "";
}

void fill_batch(PlanReport& plan, const Config& config, std::int64_t train_samples) {
  plan.global_batch = config.train.global_batch_size;
  plan.micro_batch = config.train.micro_batch_size;
  plan.accumulation = config.train.gradient_accumulation;
  plan.tokens_per_step = plan.global_batch * config.data.seq_length;
  plan.batch_ramp = ramp_in_words(config.train);
  if (config.train.epochs && train_samples == 0) {
    return;  // an epoch's length is in the data
  }
  plan.total_steps = total_steps(config, train_samples);
  plan.schedule = schedule_in_words(config, plan.total_steps);
  const std::int64_t samples = BatchSizes(config.train).samples_after(plan.total_steps);
  plan.total_tokens = samples * config.data.seq_length;
  if (config.train.tokens && *config.train.tokens != samples * config.data.seq_length) {
    plan.steps_note = "rounded up from " + thousands(*config.train.tokens) + " tokens";
  } else if (config.train.samples && *config.train.samples != samples) {
    plan.steps_note = "rounded up from " + thousands(*config.train.samples) + " samples";
  } else if (config.train.epochs) {
    const double wanted = *config.train.epochs * static_cast<double>(train_samples);
    const bool more = static_cast<double>(samples) - wanted >= 0.5;  // more than doubles round
    plan.steps_note = more ? fmt::format("rounded up from {} {}",
                                         *config.train.epochs,
                                         *config.train.epochs == 1 ? "epoch" : "epochs")
                           : plan.steps_note;
  }
}

/// Everything of the model that does not depend on the rank.
struct PlanModel {
  ModelParts parts;
  ParamUses uses;
  std::unique_ptr<ChunkPlanner> planner;
  StoreOptions options;
  std::int64_t num_states = 0;
  std::int64_t whole_bytes = 0;    ///< of states that every rank holds whole
  std::int64_t update_bytes = 0;   ///< of a GPU, during an update
  std::int64_t library_bytes = 0;  ///< of a GPU, all the time
  bool host_apart = false;         ///< ranks compute on GPUs
};

PlanModel plan_model(const Config& config, const ParallelContext& alone) {
  PlanModel model{.parts = make_model(config, alone),
                  .uses = {},
                  .planner = nullptr,
                  .options = store_options(config),
                  .num_states = 0,
                  .host_apart = capacity_of(config).apart};
  model.uses = param_uses(model.parts.blocks);
  model.planner = make_planner(model.parts.blocks, config);
  const std::unique_ptr<Optimizer> optimizer =
      optimizers().make(yaml_word(config.optimizer.type), config.optimizer);
  model.num_states = std::ssize(optimizer->states());
  std::vector<Parameter*> owned = model.uses.parameters;
  std::erase_if(owned, [](const Parameter* p) { return !p->spec().tied_to.empty(); });
  optimizer->prepare(owned, alone.mesh());
  for (const WholeState& state : optimizer->whole_states()) {
    model.whole_bytes += static_cast<std::int64_t>(state.values.nbytes());
  }
  model.update_bytes = model.host_apart ? optimizer->gpu_scratch_bytes() : 0;
  model.options.lend_grads = model.host_apart;
  model.library_bytes = model.host_apart ? workspace_bytes(config, model.options.compute) : 0;
  return model;
}

ChunkBytes chunk_bytes(const PlanModel& model,
                       const ChunkPlan& chunks,
                       const StageCost& cost,
                       const Config& config,
                       const Mesh& mesh) {
  return account({.plan = chunks,
                  .options = model.options,
                  .chunks_of_blocks = chunks_of_blocks(chunks, model.uses.specs, model.uses.blocks),
                  .num_states = model.num_states,
                  .micro_batches = config.train.gradient_accumulation,
                  .activations = cost.activations,
                  .other_bytes = loader_bytes(config, model.host_apart) + model.whole_bytes +
                                 model.library_bytes,
                  .device_bytes = config.run.device_memory.value_or(0),
                  .evaluation_bytes = cost.evaluation_bytes,
                  .update_bytes = model.update_bytes,
                  .host_apart = model.host_apart},
                 mesh);
}

/// Chunks are equal on all ranks as long as no axis shards parameters, and so is what they move.
void fill_chunks(PlanReport& plan,
                 const ChunkPlan& chunks,
                 const ChunkBytes& bytes,
                 at::ScalarType compute) {
  plan.num_chunks = static_cast<std::int64_t>(chunks.chunks.size());
  for (const ChunkSpec& chunk : chunks.chunks) {
    plan.chunk_bytes = std::max(plan.chunk_bytes,
                                chunk.numel * static_cast<std::int64_t>(at::elementSize(compute)));
  }
  plan.comm_bytes_per_step = bytes.all_reduced + bytes.reduce_scattered;
  plan.gather_bytes_per_step = bytes.gathered;
}

/// Whether a run that nothing stops saves a checkpoint.
bool saves(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  return checkpoint.at_end || checkpoint.every_steps || checkpoint.every_time_seconds ||
         config.run.max_time_seconds;
}

/// What a checkpoint holds and how many there are at most; total_steps is known or 0.
void fill_checkpoints(PlanReport& plan, const Config& whole, const PlanModel& model) {
  const CheckpointConfig& config = whole.checkpoint;
  const auto master = static_cast<std::int64_t>(at::elementSize(model.options.master));
  const auto state = static_cast<std::int64_t>(at::elementSize(model.options.state));
  const bool full = config.content == CheckpointContent::full;
  plan.checkpoint_bytes = plan.parameters * (master + (full ? state * model.num_states : 0)) +
                          (full ? model.whole_bytes : 0);
  plan.saved_bytes = saves(whole) ? plan.checkpoint_bytes : 0;
  plan.keep_last = config.keep_last;
  plan.keeps = thousands(config.keep_last);
  plan.most_checkpoints = config.keep_last + 1;
  plan.saves_aside = config.async;
  if (config.keep_every) {
    plan.keeps += " + every " + thousands(*config.keep_every);
    plan.most_checkpoints += plan.total_steps / *config.keep_every;
  }
  if (config.keep_best) {
    plan.keeps += " + best";
    ++plan.most_checkpoints;
  }
}

RankBytes rank_bytes(const PlanModel& model, const ChunkBytes& chunks, const Mesh& mesh) {
  RankBytes bytes{.rank = mesh.rank()};
  for (const ParamSpec& spec : model.uses.specs) {
    const bool owned = spec.tied_to.empty();
    bytes.parameters += owned ? numel(local_shape(spec.layout, spec.padded, mesh)) : 0;
  }
  bytes.weights = chunks.weights;
  bytes.grads = chunks.grads;
  bytes.optimizer = chunks.optimizer;
  bytes.borrowed = chunks.borrowed;
  bytes.activations = chunks.activations;
  bytes.host = chunks.host;
  bytes.moved = chunks.moved;
  bytes.nvme = chunks.nvme;
  bytes.slack = chunks.slack;
  return bytes;
}

/// Blocks need a context, and what they hold at once depends on the device; nothing communicates.
ParallelContext context_of_plan(const Config& config) {
  return ParallelContext(config, at::Device(capacity_of(config).apart ? at::kCUDA : at::kCPU));
}

PlanReport plan_outline(const Config& config, std::int64_t train_samples, const PlanModel& model) {
  PlanReport plan;
  plan.name = config.run.name;
  fill_batch(plan, config, train_samples);
  const Mesh first(mesh_shape(config.parallel), 0);
  plan.world = first.world_size();
  plan.data = first.size(data_axes());
  plan.pipeline = first.size(Axis::pp);
  plan.sequence = first.size(Axis::sp);
  plan.tensor = first.size(colossal::axes({Axis::t0, Axis::t1, Axis::t2}));
  fill_model(plan, config.model);
  plan.parameters = num_parameters(model.parts.blocks);
  fill_checkpoints(plan, config, model);
  plan.device_memory = config.run.device_memory.value_or(0);
  plan.output_dir = config.run.output_dir;
  return plan;
}

}  // namespace

void set_planned_threads(const Config& config) {
  set_threads(config.run, Mesh(mesh_shape(config.parallel), 0).world_size());
}

PlanReport make_outline(const Config& config, std::int64_t train_samples) {
  const ParallelContext alone = context_of_plan(config);
  return plan_outline(config, train_samples, plan_model(config, alone));
}

PlanReport make_plan(const Config& config, std::int64_t train_samples) {
  const ParallelContext alone = context_of_plan(config);
  const PlanModel model = plan_model(config, alone);
  const StageCost cost = stage_cost(config, model.parts.blocks);
  PlanReport plan = plan_outline(config, train_samples, model);
  plan.flops_per_step = cost.flops * static_cast<double>(plan.accumulation * plan.data);
  const MeshShape shape = mesh_shape(config.parallel);
  // Ranks that differ in their data alone hold and move the same.
  std::map<int, RankBytes> of_group;
  for (int rank = 0; rank < plan.world; ++rank) {
    const Mesh mesh(shape, rank);
    const int group = mesh.index(~data_axes());
    if (const auto known = of_group.find(group); known != of_group.end()) {
      plan.ranks.push_back(known->second);
      plan.ranks.back().rank = rank;
      continue;
    }
    const ChunkPlan chunks = model.planner->plan(model.uses.specs, model.uses.blocks, mesh);
    const ChunkBytes held = chunk_bytes(model, chunks, cost, config, mesh);
    if (rank == 0) {
      fill_chunks(plan, chunks, held, model.options.compute);
    }
    RankBytes bytes = rank_bytes(model, held, mesh);
    bytes.buffers = loader_bytes(config, model.host_apart) + model.library_bytes;
    bytes.host.inputs = cost.host_bytes;
    of_group.emplace(group, bytes);
    plan.ranks.push_back(bytes);
  }
  return plan;
}

}  // namespace colossal
