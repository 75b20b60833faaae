// How does a test train? A run in one call, with every report kept and the final weights whole.
#pragma once

#include "mesh/context.hpp"
#include "train/trainer.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// Keeps the reports of every step and calls `after_step`, if any.
class RecordingHook : public Hook {
 public:
  using Callback = std::function<void(Trainer&, const StepReport&)>;

  explicit RecordingHook(std::vector<StepReport>& reports, Callback after_step = {})
      : reports_(reports), after_step_(std::move(after_step)) {}
  void on_step(Trainer& trainer, const StepReport& report) override {
    reports_.push_back(report);
    if (after_step_) {
      after_step_(trainer, report);
    }
  }

 private:
  std::vector<StepReport>& reports_;
  Callback after_step_;
};

/// Elements of one copy of all chunks, padding included.
inline std::int64_t chunk_elements(const ChunkStore& store) {
  std::int64_t count = 0;
  for (const ChunkSpec& chunk : store.plan().chunks) {
    count += chunk.numel;
  }
  return count;
}

using Tensors = std::map<std::string, at::Tensor>;

/// Zeros for everything a checkpoint would hold, by record name, in one order on all ranks.
inline Tensors empty_records(const Trainer& trainer) {
  ChunkStore& store = *trainer.parts().store;
  Tensors tensors;
  for (const Parameter* parameter : store.parameters()) {
    const ParamSpec& spec = parameter->spec();
    const FlatShard& shard = store.shards().front();
    tensors["model/" + spec.name] = at::zeros(spec.shape, shard.master.options());
    for (const auto& [state, tensor] : shard.state) {
      tensors["optim/" + state + "/" + spec.name] = at::zeros(spec.shape, tensor.options());
    }
  }
  return tensors;
}

/// Adds what other ranks hold of tensors that are cut into parts, by one sum a dtype and kind of
/// device; all policies cut all chunks alike.
inline void join_parts(const Trainer& trainer, Tensors& tensors) {
  const AxisSet cut = trainer.parts().store->plan().chunks.front().shard_axes;
  const Comm& comm = trainer.parts().context.comm(cut);
  std::map<std::pair<at::ScalarType, at::DeviceType>, std::vector<at::Tensor>> flat;
  for (const auto& [name, tensor] : tensors) {
    flat[{tensor.scalar_type(), tensor.device().type()}].push_back(tensor.view(-1));
  }
  for (auto& [kind, parts] : flat) {
    at::Tensor all = at::cat(parts);
    comm.all_reduce(all).wait();
    std::int64_t begin = 0;
    for (at::Tensor& part : parts) {
      part.copy_(all.narrow(0, begin, part.numel()));
      begin += part.numel();
    }
  }
}

/// Copies of everything a checkpoint would hold, by record name, joined over the ranks that hold
/// parts.
inline Tensors copy_records(Trainer& trainer) {
  Tensors tensors = empty_records(trainer);
  for (const TensorRecord& record : trainer.records()) {
    if (record.bring) {
      record.bring();
    }
    const auto known = tensors.find(record.name);
    if (known == tensors.end()) {
      continue;  // whole on every rank: below
    }
    for (const Region& region : record.regions) {
      at::Tensor to = known->second;
      at::Tensor from = record.local;
      for (std::size_t d = 0; d < region.extent.size(); ++d) {
        const auto dim = static_cast<std::int64_t>(d);
        to = to.narrow(dim, region.global_offset[d], region.extent[d]);
        from = from.narrow(dim, region.local_offset[d], region.extent[d]);
      }
      to.copy_(from);
    }
  }
  join_parts(trainer, tensors);
  for (const WholeState& state : trainer.parts().optimizer->whole_states()) {
    const auto param = static_cast<std::size_t>(state.param);
    const std::string& name = trainer.parts().store->parameters()[param]->spec().name;
    tensors["optim/" + std::string(state.name) + "/" + name] = state.values.clone();
  }
  return tensors;
}

/// A finished run.
struct Trained {
  std::vector<StepReport> reports;
  Tensors tensors;  ///< of copy_records()
  RunState state;
};

/// Runs `trainer` to its end.
inline Trained finish(Trainer& trainer, RecordingHook::Callback after_step = {}) {
  Trained result;
  trainer.add_hook(std::make_unique<RecordingHook>(result.reports, std::move(after_step)));
  result.state = trainer.run();
  result.tensors = copy_records(trainer);
  return result;
}

/// Trains `config` from the start on the ranks of `context`.
inline Trained train(const Config& config,
                     const ParallelContext& context,
                     RecordingHook::Callback after_step = {}) {
  Trainer trainer(build(config, context, {}), {});
  return finish(trainer, std::move(after_step));
}

/// The state of a run after `step` updates that consumed `consumed` samples.
inline RunState state_at(std::int64_t step, std::int64_t consumed) {
  RunState state;
  state.step = step;
  state.consumed = consumed;
  return state;
}

/// A trainer that stops after `stop` steps of `config`'s schedule: at the start, or at the position
/// and with the tensors of the checkpoint `from` if that is given.
inline std::unique_ptr<Trainer> make_trainer(const Config& config,
                                             const ParallelContext& context,
                                             std::int64_t stop,
                                             const std::filesystem::path& from = {}) {
  const RunState state = from.empty() ? RunState{} : read_state(from);
  TrainerParts parts = build(config, context, state);
  parts.total_steps = stop;
  auto trainer = std::make_unique<Trainer>(std::move(parts), state);
  if (!from.empty()) {
    std::vector<TensorRecord> records = trainer->records();
    load_tensors(from, records, context.comm(data_axes()));
    trainer->parts().store->publish_masters();
  }
  return trainer;
}

/// `trainer`'s checkpoint in `root`, written by the ranks of `world`; returns its folder.
inline std::filesystem::path save(Trainer& trainer,
                                  const std::filesystem::path& root,
                                  const Comm& world) {
  save_checkpoint(root, trainer.state(), trainer.records(), world, {.keep_last = 100});
  return list_checkpoints(root).back().path;
}

}  // namespace colossal::test
