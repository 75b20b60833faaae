// Which parts does a run consist of? One small function per part, in order of construction.
#include "config/load.hpp"
#include "config/schedule.hpp"
#include "train/trainer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

namespace colossal {
namespace {

std::unique_ptr<Loader> make_loader(const Config& config,
                                    const Mesh& mesh,
                                    const Dataset& dataset,
                                    const RunState& state) {
  const LoaderSpec spec{.order = order_spec(config),
                        .micro_batch = config.train.micro_batch_size,
                        .num_micro_batches = config.train.gradient_accumulation,
                        .ramp = config.train.batch_ramp,
                        .workers = config.data.workers,
                        .prefetch = config.data.prefetch};
  const DataShard shard{mesh.index(data_axes()), mesh.size(data_axes())};
  return std::make_unique<Loader>(dataset, spec, shard, LoaderState{state.consumed});
}

std::vector<ParamGroup> make_groups(const OptimizerConfig& config, const ChunkStore& store) {
  std::vector<std::string> names;
  for (const Parameter* parameter : store.parameters()) {
    names.push_back(parameter->spec().name);
  }
  return param_groups(config, names);
}

}  // namespace

void set_threads(const RunConfig& run, int local_world_size) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t share = std::max<std::int64_t>(1, cores / std::max(1, local_world_size));
  at::set_num_threads(static_cast<int>(run.threads.value_or(share)));
  if (at::get_num_interop_threads() != 1) {  // torch allows one change per process
    at::set_num_interop_threads(1);
  }
}

TrainerParts build(const Config& config,
                   const ParallelContext& context,
                   const RunState& state,
                   OpenedData data) {
  TrainerParts parts(config, context);
  parts.train_data = std::move(data.train);
  parts.eval_data = std::move(data.eval);
  parts.loader = make_loader(config, context.mesh(), *parts.train_data, state);
  parts.total_steps = total_steps(config, parts.loader->samples_per_epoch());
  parts.scheduler =
      std::make_unique<Scheduler>(config.scheduler, effective_lr(config), parts.total_steps);
  parts.optimizer = optimizers().make(yaml_word(config.optimizer.type), config.optimizer);
  static_cast<LiveModel&>(parts) = build_model(config, context, parts.optimizer->states());
  parts.groups = make_groups(config.optimizer, *parts.store);
  parts.optimizer->prepare(parts.store->parameters(), context.mesh());
  return parts;
}

TrainerParts build(const Config& config, const ParallelContext& context, const RunState& state) {
  return build(config, context, state, open_data(config));
}

}  // namespace colossal
