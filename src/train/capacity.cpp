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
  std::int64_t all = 0;
  for (const RankBytes& rank : plan.ranks) {
    all += rank.total() + rank.host;
  }
  const std::int64_t missing = all - capacity.host;
  if (capacity.host <= 0 || missing <= 0) {
    return std::nullopt;
  }
  const std::int64_t ranks = std::ssize(plan.ranks);
  return Overrun{.rank = fullest->rank,
                 .missing = (missing + ranks - 1) / ranks,
                 .text = fmt::format("the plan needs {} for {} process{}, and this machine has {}",
                                     size_text(all),
                                     ranks,
                                     ranks == 1 ? "" : "es",
                                     size_text(capacity.host))};
}

}  // namespace colossal
