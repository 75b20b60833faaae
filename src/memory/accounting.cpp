// What does a plan need? What stays is summed up; what comes and goes is played through.
#include "memory/accounting.hpp"

#include "memory/detail/measured_plan.hpp"
#include "memory/detail/step_play.hpp"
#include "memory/slot_pipeline.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace colossal {
namespace {

constexpr std::int64_t kPlayed = 3;  // micro-batches: the first, one like all others, and the last

using detail::index;

std::int64_t size_of(at::ScalarType dtype) {
  return static_cast<std::int64_t>(at::elementSize(dtype));
}

/// Where bytes count on the device, and where if they lie on the host.
struct Category {
  std::int64_t ChunkBytes::* on_device;
  std::int64_t HostBytes::* on_host;
};

constexpr Category kWeights{&ChunkBytes::weights, &HostBytes::weights};
constexpr Category kGrads{&ChunkBytes::grads, &HostBytes::grads};
constexpr Category kOptimizer{&ChunkBytes::optimizer, &HostBytes::optimizer};
/// A copy of a master; from the host each publish sends it to the device.
constexpr Category kWorkingCopy{&ChunkBytes::optimizer, &HostBytes::buffers};

/// Adds to the bytes of a place.
void add(ChunkBytes& bytes, Tier home, const Category& category, std::int64_t amount) {
  (home == Tier::device ? bytes.*category.on_device : bytes.host.*category.on_host) += amount;
}

/// What a GPU's host holds beside the homes: a working copy where the update writes it (README,
/// decision 20), and a sum that arrives to be added to an earlier one.
void add_beside_homes(ChunkBytes& bytes,
                      const ChunkSpec& chunk,
                      const AccountingInput& input,
                      const Mesh& mesh) {
  const StoreOptions& options = input.options;
  const Tier weights_home = chunk.resident ? Tier::device : chunk.param_home;
  if (options.master != options.compute && chunk.optim_home != weights_home) {
    add(bytes, chunk.optim_home, kWorkingCopy, part_numel(chunk, mesh) * size_of(options.compute));
  }
  const bool adds = options.training && input.plan.shard_grads && input.micro_batches > 1;
  bytes.host.buffers += adds && chunk.optim_home != Tier::device
                            ? part_numel(chunk, mesh) * size_of(options.reduce)
                            : 0;
}

/// What stays: homes of weights, masters, states and gradients.
void add_homes(ChunkBytes& bytes,
               const ChunkSpec& chunk,
               const AccountingInput& input,
               const Mesh& mesh) {
  const StoreOptions& options = input.options;
  const std::int64_t part = part_numel(chunk, mesh);
  const bool mixed = options.master != options.compute;
  const Tier weights_home = chunk.resident ? Tier::device : chunk.param_home;
  const bool is_master = !mixed && chunk.optim_home == weights_home;
  add(bytes,
      weights_home,
      kWeights,
      (chunk.resident ? chunk.numel : part) * size_of(options.compute));
  add(bytes, chunk.optim_home, kOptimizer, is_master ? 0 : part * size_of(options.master));
  if (!options.training) {
    return;
  }
  const std::int64_t states = part * size_of(options.state) * input.num_states;
  if (chunk.states_on_disk) {
    bytes.nvme += states;
  } else {
    add(bytes, chunk.optim_home, kOptimizer, states);
  }
  const bool in_place = !input.plan.shard_grads && chunk.optim_home == Tier::device;
  const bool stays = !input.plan.shard_grads && !options.lend_grads;
  bytes.grads += stays ? chunk.numel * size_of(options.grad) : 0;
  add(bytes, chunk.optim_home, kGrads, in_place ? 0 : part * size_of(options.grad));
}

/// What a step gathers, from the micro-batches that were played: the first and the last differ from
/// those between them.
std::int64_t gathered_in_step(const std::vector<std::int64_t>& played, std::int64_t micro_batches) {
  const std::int64_t left = micro_batches - std::ssize(played);
  return played.back() + (left > 0 ? left * (played[1] - played[0]) : 0);
}

/// What would move with the optimizer of a chunk.
std::int64_t optimizer_bytes(const ChunkSpec& chunk,
                             const AccountingInput& input,
                             const Mesh& mesh) {
  const StoreOptions& options = input.options;
  return chunk.states_on_disk
             ? 0
             : part_numel(chunk, mesh) * (size_of(options.master) + size_of(options.grad) +
                                          size_of(options.state) * input.num_states);
}

/// What the home of a chunk's weights would move beside its optimizer.
std::int64_t weight_bytes(const ChunkSpec& chunk, const AccountingInput& input, const Mesh& mesh) {
  const StoreOptions& options = input.options;
  const bool apart = !chunk.resident && options.master != options.compute;
  return apart ? part_numel(chunk, mesh) * size_of(options.compute) : 0;
}

/// Decides as the store will after its first step, moves homes in `plan` and notes them and the
/// slack in `bytes` and returns the budgets; none if the size of the device is unknown, or too
/// little for any.
std::vector<std::int64_t> measured_budgets(const AccountingInput& input,
                                           const Mesh& mesh,
                                           ChunkPlan& plan,
                                           ChunkBytes& bytes) {
  if (!input.plan.measured || input.device_bytes == 0 || !input.options.training) {
    return {};
  }
  detail::StepPlay first(input, mesh);
  first.run(std::min(input.micro_batches, kPlayed));
  detail::MeasuredInput measured{
      .device_bytes = input.device_bytes,
      .home_bytes = bytes.weights + bytes.grads + bytes.optimizer + input.other_bytes,
      .shares = *input.plan.measured,
      .non_model = first.non_model(),
      .needs = first.needs(),
      .optimizer_bytes = {},
      .weight_bytes = {}};
  for (const ChunkSpec& chunk : input.plan.chunks) {
    measured.optimizer_bytes.push_back(optimizer_bytes(chunk, input, mesh));
    measured.weight_bytes.push_back(weight_bytes(chunk, input, mesh));
  }
  detail::MeasuredDecision decision = detail::decide(measured);
  detail::follow(decision, input.options.master == input.options.compute, mesh, plan);
  for (const int chunk : decision.to_device) {
    bytes.optimizer += measured.optimizer_bytes[index(chunk)];
    bytes.moved += measured.optimizer_bytes[index(chunk)];
  }
  for (const int chunk : decision.homes_to_device) {
    bytes.weights += measured.weight_bytes[index(chunk)];
    bytes.moved += measured.weight_bytes[index(chunk)];
  }
  bytes.slack = decision.slack;
  return std::move(decision.budgets);
}

/// The same with another plan, which must outlive the result.
AccountingInput with_plan(const AccountingInput& input, const ChunkPlan& plan) {
  return {.plan = plan,
          .options = input.options,
          .chunks_of_blocks = input.chunks_of_blocks,
          .num_states = input.num_states,
          .micro_batches = input.micro_batches,
          .activations = input.activations,
          .other_bytes = input.other_bytes,
          .device_bytes = input.device_bytes,
          .evaluation_bytes = input.evaluation_bytes,
          .update_bytes = input.update_bytes,
          .host_apart = input.host_apart};
}

/// Gathered weights of the block that needs most of them.
std::int64_t most_needed(const AccountingInput& input) {
  std::int64_t most = 0;
  for (const std::vector<int>& chunks : input.chunks_of_blocks) {
    std::int64_t bytes = 0;
    for (const int chunk : chunks) {
      const ChunkSpec& spec = input.plan.chunks[index(chunk)];
      bytes += spec.resident ? 0 : spec.numel * size_of(input.options.compute);
    }
    most = std::max(most, bytes);
  }
  return most;
}

/// Buffers that states on disk pass through.
std::int64_t disk_buffer_bytes(const AccountingInput& input, const Mesh& mesh) {
  std::int64_t largest = 0;
  for (const ChunkSpec& chunk : input.plan.chunks) {
    const std::int64_t states =
        part_numel(chunk, mesh) * size_of(input.options.state) * input.num_states;
    largest = std::max(largest, chunk.states_on_disk ? states : 0);
  }
  return input.options.training ? static_cast<std::int64_t>(SlotPipeline::kBuffers) * largest : 0;
}

}  // namespace

ChunkBytes account(const AccountingInput& input, const Mesh& mesh) {
  ChunkBytes bytes;
  const std::int64_t reduced_item = size_of(input.options.reduce);
  const std::int64_t reductions = input.plan.shard_grads ? input.micro_batches : 1;
  for (const ChunkSpec& chunk : input.plan.chunks) {
    add_homes(bytes, chunk, input, mesh);
    if (input.host_apart) {
      add_beside_homes(bytes, chunk, input, mesh);
    }
    const std::int64_t reduced =
        mesh.size(chunk.reduce_axes) > 1 ? chunk.numel * reduced_item * reductions : 0;
    (chunk.shard_axes.none() ? bytes.all_reduced : bytes.reduce_scattered) += reduced;
    if (chunk.resident && chunk.shard_axes.any() && mesh.size(chunk.shard_axes) > 1) {
      bytes.gathered += part_numel(chunk, mesh) * size_of(input.options.compute);
    }
  }
  bytes.host.buffers += disk_buffer_bytes(input, mesh);
  if (input.plan.cache_bytes) {
    bytes.slack = *input.plan.cache_bytes - most_needed(input);
  }
  ChunkPlan plan = input.plan;
  std::vector<std::int64_t> budgets = measured_budgets(input, mesh, plan, bytes);
  const AccountingInput decided = with_plan(input, plan);
  detail::StepPlay play(decided, mesh, std::move(budgets));
  play.run(std::min(input.micro_batches, kPlayed));
  play.evaluate();
  bytes.borrowed = play.borrowed();
  bytes.activations = play.activations();
  bytes.grads += play.lent();
  const bool alone = mesh.size(data_axes()) == 1;
  bytes.gathered += alone ? 0 : gathered_in_step(play.gathered(), input.micro_batches);
  return bytes;
}

std::vector<std::vector<int>> chunks_of_blocks(const ChunkPlan& plan,
                                               std::span<const ParamSpec> params,
                                               std::span<const std::vector<int>> blocks) {
  std::vector<int> chunk_of(params.size());
  for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
    for (const int param : plan.chunks[index(chunk)].params) {
      chunk_of[index(param)] = chunk;
    }
  }
  const std::vector<int> owner_of = owner_indices(params);
  std::vector<std::vector<int>> result;
  for (const std::vector<int>& block : blocks) {
    std::set<int> used;
    for (const int param : block) {
      used.insert(chunk_of[index(owner_of[index(param)])]);
    }
    result.emplace_back(used.begin(), used.end());
  }
  return result;
}

}  // namespace colossal
