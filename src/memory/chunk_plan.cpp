// What do all chunk planners share? Ownership of tied parameters, the target length, and the table
// of policies.
#include "memory/chunk_plan.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "memory/planners/packed.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace colossal {
namespace {

constexpr std::int64_t kKibi = 1024;
constexpr std::int64_t kMinChunkBytes =
    256 * kKibi;  // below, a collective's latency exceeds its transfer
constexpr std::int64_t kMaxChunkBytes = 32 * kKibi * kKibi;
constexpr std::int64_t kChunksPerModel = 8;  // reductions that can overlap with backward

}  // namespace

ParamUses list_uses(std::span<const std::vector<Parameter*>> blocks) {
  ParamUses uses;
  std::unordered_map<const Parameter*, int> index_of;
  const auto number = [&](Parameter* parameter) {
    const auto [entry, fresh] =
        index_of.emplace(parameter, static_cast<int>(uses.parameters.size()));
    if (fresh) {
      uses.parameters.push_back(parameter);
      uses.specs.push_back(parameter->spec());
    }
    return entry->second;
  };
  for (const std::vector<Parameter*>& block : blocks) {
    std::vector<int>& used = uses.blocks.emplace_back();
    for (Parameter* const parameter : block) {
      used.push_back(number(parameter));
    }
  }
  return uses;
}

std::vector<int> owner_indices(std::span<const ParamSpec> params) {
  std::unordered_map<std::string_view, int> index_of;
  index_of.reserve(params.size());
  for (const ParamSpec& spec : params) {
    const bool fresh = index_of.emplace(spec.name, static_cast<int>(index_of.size())).second;
    check(
        fresh, ErrorKind::internal, "param-duplicate", "two parameters are called '{}'", spec.name);
  }
  std::vector<int> owners;
  for (const ParamSpec& spec : params) {
    const auto found = index_of.find(spec.tied_to.empty() ? spec.name : spec.tied_to);
    check(
        found != index_of.end() && params[static_cast<std::size_t>(found->second)].tied_to.empty(),
        ErrorKind::internal,
        "tied-owner",
        "parameter '{}' is tied to '{}', which is no parameter with its own memory",
        spec.name,
        spec.tied_to);
    const ParamSpec& owner = params[static_cast<std::size_t>(found->second)];
    check(owner.padded == spec.padded && owner.layout == spec.layout,
          ErrorKind::internal,
          "tied-shape",
          "parameter '{}' is tied to '{}', which has another shape or layout",
          spec.name,
          spec.tied_to);
    owners.push_back(found->second);
  }
  return owners;
}

double usable_share(const MeasuredBudget& budget) {
  return budget.steady_ratio * (1 - budget.reserve);
}

std::int64_t part_numel(const ChunkSpec& chunk, const Mesh& mesh) {
  return chunk.numel / mesh.size(chunk.shard_axes);
}

const Registry<ChunkPlanner, const ChunkPlannerRequest&>& chunk_planners() {
  static const Registry<ChunkPlanner, const ChunkPlannerRequest&> table(
      "memory policy",
      {{"0", make_replicated_planner},
       {"1", make_sharded_optimizer_planner},
       {"2", make_sharded_gradient_planner},
       {"3", make_sharded_weight_planner},
       {"static", make_static_planner},
       {"cuda", make_device_planner},
       {"cpu", make_host_planner},
       {"const", make_budget_planner},
       {"auto", make_measured_planner}});
  return table;
}

std::string memory_policy(const ParallelConfig& parallel) {
  return parallel.gemini ? std::string(yaml_word(parallel.gemini->placement))
                         : std::to_string(parallel.zero.stage);
}

std::int64_t default_chunk_bytes(std::int64_t model_bytes) {
  return std::clamp(model_bytes / kChunksPerModel, kMinChunkBytes, kMaxChunkBytes);
}

std::int64_t packing_waste(std::span<const std::int64_t> lengths, std::int64_t chunk_numel) {
  std::int64_t left = 0;
  std::int64_t waste = 0;
  for (const std::int64_t length : lengths) {
    if (length > left) {
      waste += left;
      left = chunk_numel;
    }
    left -= length;
  }
  return waste + left;
}

std::int64_t search_chunk_numel(std::span<const std::int64_t> lengths, const ChunkSearch& search) {
  const auto count = static_cast<double>(lengths.size());
  double sum = 0;
  double squares = 0;
  for (const std::int64_t length : lengths) {
    sum += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
  const double mean = count > 0 ? sum / count : 0;
  const double deviation = count > 0 ? std::sqrt(std::max(0.0, squares / count - mean * mean)) : 0;
  std::vector<std::int64_t> usual;
  std::int64_t start = std::max<std::int64_t>(search.min_numel, 1);
  for (const std::int64_t length : lengths) {
    if (static_cast<double>(length) <= mean + 3 * deviation) {
      usual.push_back(length);
      start = std::max(start, length);
    }
  }
  start = (start + search.interval - 1) / search.interval * search.interval;
  std::int64_t best = start;
  std::int64_t least = packing_waste(usual, start);
  for (std::int64_t size = start; size <= start + search.range && least > 0;
       size += search.interval) {
    if (const std::int64_t waste = packing_waste(usual, size); waste < least) {
      best = size;
      least = waste;
    }
  }
  return best;
}

}  // namespace colossal
