// How much is there, and how much is too much?
#include "train/capacity.hpp"

#include "mesh/device.hpp"
#include "train/host_facts.hpp"
#include "train/human.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal {
namespace {

std::string size_text(std::int64_t bytes) {
  return human_binary(static_cast<double>(bytes));
}

/// Ranks that share the memory of one machine.
std::int64_t ranks_of_machine(const PlanReport& plan) {
  const auto ranks = std::ssize(plan.ranks);
  return plan.ranks_per_node > 0 ? std::min<std::int64_t>(plan.ranks_per_node, ranks) : ranks;
}

/// Bytes of all ranks of the machine that needs most.
std::int64_t fullest_machine(const PlanReport& plan) {
  const auto size = static_cast<std::size_t>(ranks_of_machine(plan));
  std::int64_t most = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    sum = (i % size == 0 ? 0 : sum) + plan.ranks[i].total() + plan.ranks[i].host;
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

Capacity capacity_of(const Config& config) {
  if (config.run.device_memory) {
    return {.device = *config.run.device_memory, .host = 0, .device_name = "run.device_memory"};
  }
  if (config.run.device != DeviceKind::cpu) {
    const GpuSurvey survey = survey_gpus();
    const auto smallest = std::ranges::min_element(survey.gpus, {}, &Gpu::bytes);
    if (smallest != survey.gpus.end() && survey.built_for != 0) {
      return {.device = smallest->bytes, .host = 0, .device_name = smallest->name};
    }
    if (config.run.device == DeviceKind::cuda) {
      return {};  // planned for GPUs that are elsewhere
    }
  }
  return {.device = 0, .host = usable_memory(), .device_name = {}};
}

std::optional<Overrun> overrun(const PlanReport& plan, const Capacity& capacity) {
  const auto fullest = std::ranges::max_element(plan.ranks, {}, &RankBytes::total);
  if (fullest == plan.ranks.end()) {
    return std::nullopt;
  }
  if (capacity.device > 0) {
    const std::int64_t missing = fullest->total() - capacity.device;
    return missing <= 0 ? std::nullopt
                        : std::optional(Overrun{
                              .rank = fullest->rank,
                              .missing = missing,
                              .text = fmt::format("the plan needs {} on rank {}, and {} is {}",
                                                  size_text(fullest->total()),
                                                  fullest->rank,
                                                  capacity.device_name,
                                                  size_text(capacity.device))});
  }
  const std::int64_t all = fullest_machine(plan);
  const std::int64_t missing = all - capacity.host;
  if (capacity.host <= 0 || missing <= 0) {
    return std::nullopt;
  }
  const std::int64_t ranks = ranks_of_machine(plan);
  return Overrun{.rank = fullest->rank,
                 .missing = (missing + ranks - 1) / ranks,
                 .text = fmt::format("the plan needs {} for {} process{}, and this machine has {}",
                                     size_text(all),
                                     ranks,
                                     ranks == 1 ? "" : "es",
                                     size_text(capacity.host))};
}

}  // namespace colossal
