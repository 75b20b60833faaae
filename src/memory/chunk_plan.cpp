// What do all chunk planners share? Ownership of tied parameters, the target length, and the table
// of policies.
#include "memory/chunk_plan.hpp"

#include "core/error.hpp"
#include "memory/planners/replicated.hpp"

#include <algorithm>
#include <map>
#include <string_view>

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
  std::map<const Parameter*, int> index_of;
  for (const std::vector<Parameter*>& block : blocks) {
    std::vector<int>& used = uses.blocks.emplace_back();
    for (Parameter* const parameter : block) {
      const auto [entry, fresh] =
          index_of.emplace(parameter, static_cast<int>(uses.parameters.size()));
      if (fresh) {
        uses.parameters.push_back(parameter);
        uses.specs.push_back(parameter->spec());
      }
      used.push_back(entry->second);
    }
  }
  return uses;
}

std::vector<int> owner_indices(std::span<const ParamSpec> params) {
  std::map<std::string_view, int> index_of;
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

const Registry<ChunkPlanner, const ChunkPlannerRequest&>& chunk_planners() {
  static const Registry<ChunkPlanner, const ChunkPlannerRequest&> table(
      "memory policy", {{"replicated", make_replicated_planner}});
  return table;
}

std::int64_t default_chunk_bytes(std::int64_t model_bytes) {
  return std::clamp(model_bytes / kChunksPerModel, kMinChunkBytes, kMaxChunkBytes);
}

}  // namespace colossal
