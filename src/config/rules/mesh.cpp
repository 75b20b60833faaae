// Does the mesh fit the number of processes?
#include "config/rules/rules.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

void mesh_fills_world(const RuleInput& in) {
  const std::int64_t data = in.config.parallel.data;
  if (!in.host.world_size || data == *in.host.world_size) {
    return;
  }
  const std::int64_t world = *in.host.world_size;
  Diagnostic& error = in.error(
      "world-size",
      "parallel.data",
      fmt::format(
          "parallel.data {} does not fill {}", data, counted(world, "process", "processes")));
  error.why = "the product of all parallel sizes is the number of processes";
  if (!in.host.world_origin.empty()) {
    error.why += fmt::format("; world size {}: {}", world, in.host.world_origin);
  }
  error.fix = fmt::format("data: auto | data: {} | start {} with --nproc {} or torchrun",
                          world,
                          counted(data, "process", "processes"),
                          data);
}

constexpr std::array<Rule, 1> kMeshRules = {mesh_fills_world};

}  // namespace

std::span<const Rule> mesh_rules() {
  return kMeshRules;
}

}  // namespace colossal::detail
