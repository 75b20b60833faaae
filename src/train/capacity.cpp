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
std::int64_t fullest_machine(const PlanReport& plan, MemoryShare share) {
  const auto size = static_cast<std::size_t>(ranks_of_machine(plan));
  std::int64_t most = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    sum = (i % size == 0 ? 0 : sum) + bytes_of(plan.ranks[i], share);
    most = std::max(most, sum);
  }
  return most;
}

/// The smallest GPU that this program could use; of no bytes if there is none.
Gpu smallest_gpu() {
  const GpuSurvey survey = survey_gpus();
  const auto smallest = std::ranges::min_element(survey.gpus, {}, &Gpu::bytes);
  return smallest != survey.gpus.end() && survey.built_for != 0 ? *smallest : Gpu{};
}

std::optional<Overrun> device_overrun(const PlanReport& plan, const Capacity& capacity) {
  const RankBytes& fullest = *std::ranges::max_element(plan.ranks, {}, &RankBytes::total);
  const std::int64_t missing = fullest.total() - capacity.device;
  if (capacity.device <= 0 || missing <= 0) {
    return std::nullopt;
  }
  return Overrun{.rank = fullest.rank,
                 .missing = missing,
                 .text = fmt::format("the plan needs {} on rank {}, and {} is {}",
                                     size_text(fullest.total()),
                                     fullest.rank,
                                     capacity.device_name,
                                     size_text(capacity.device)),
                 .share = MemoryShare::device,
                 .key = capacity.device_key};
}

std::optional<Overrun> budget_overrun(const PlanReport& plan, const Capacity& capacity) {
  const auto lacking = [](const RankBytes& rank) { return bytes_of(rank, MemoryShare::budget); };
  const RankBytes& worst = *std::ranges::max_element(plan.ranks, {}, lacking);
  if (lacking(worst) <= 0) {
    return std::nullopt;
  }
  return Overrun{
      .rank = worst.rank,
      .missing = lacking(worst),
      .text = fmt::format("what gemini may use for gathered weights on rank {} is {} less "
                          "than its neediest block needs",
                          worst.rank,
                          size_text(lacking(worst))),
      .share = MemoryShare::budget,
      .key = capacity.budget_key};
}

constexpr const char* kHostKey = "parallel.gemini.host_memory";

std::optional<Overrun> host_limit_overrun(const PlanReport& plan, const Capacity& capacity) {
  const auto held = [](const RankBytes& rank) { return rank.host.total(); };
  const RankBytes& fullest = *std::ranges::max_element(plan.ranks, {}, held);
  const std::int64_t missing = held(fullest) - capacity.host_limit;
  if (capacity.host_limit <= 0 || missing <= 0) {
    return std::nullopt;
  }
  return Overrun{.rank = fullest.rank,
                 .missing = missing,
                 .text = fmt::format("the plan needs {} of host memory on rank {}, and {} is {}",
                                     size_text(held(fullest)),
                                     fullest.rank,
                                     kHostKey,
                                     size_text(capacity.host_limit)),
                 .share = MemoryShare::host,
                 .key = kHostKey};
}

std::optional<Overrun> machine_overrun(const PlanReport& plan, const Capacity& capacity) {
  const MemoryShare share = capacity.apart ? MemoryShare::host : MemoryShare::both;
  const std::int64_t all = fullest_machine(plan, share);
  const std::int64_t missing = all - capacity.host;
  if (capacity.host <= 0 || missing <= 0) {
    return std::nullopt;
  }
  const auto bytes = [&](const RankBytes& rank) { return bytes_of(rank, share); };
  const std::int64_t ranks = ranks_of_machine(plan);
  return Overrun{
      .rank = std::ranges::max_element(plan.ranks, {}, bytes)->rank,
      .missing = (missing + ranks - 1) / ranks,
      .text = fmt::format("the plan needs {}{} for {} process{}, and this machine has {}",
                          size_text(all),
                          capacity.apart ? " of host memory" : "",
                          ranks,
                          ranks == 1 ? "" : "es",
                          size_text(capacity.host)),
      .share = share};
}

}  // namespace

std::int64_t bytes_of(const RankBytes& rank, MemoryShare share) {
  if (share == MemoryShare::budget) {
    return -rank.slack.value_or(0);
  }
  return (share == MemoryShare::host ? 0 : rank.total()) +
         (share == MemoryShare::device ? 0 : rank.host.total()) -
         (share == MemoryShare::both ? rank.moved : 0);
}

Capacity capacity_of(const Config& config) {
  const std::optional<std::int64_t>& size = config.run.device_memory;
  const std::optional<GeminiConfig>& gemini = config.parallel.gemini;
  const bool on_cpu = config.run.device == DeviceKind::cpu;
  const Gpu gpu = on_cpu ? Gpu{} : smallest_gpu();
  const std::string device_key = size ? "run.device_memory" : "";
  const bool constant = gemini && gemini->placement == Placement::constant;
  // A plan for GPUs that are elsewhere says nothing of this machine's host memory.
  const bool elsewhere = config.run.device == DeviceKind::cuda && gpu.bytes == 0;
  return {.device = size.value_or(gpu.bytes),
          .host = elsewhere ? 0 : usable_memory(),
          .host_limit = gemini ? gemini->host_memory.value_or(0) : 0,
          .device_name = size ? device_key : gpu.name,
          .device_key = device_key,
          .budget_key = constant ? "parallel.gemini.const_budget" : device_key,
          // Where no GPU is, auto is the cpu, also with a size: its "device" is this memory, too.
          .apart = config.run.device == DeviceKind::cuda || (!on_cpu && gpu.bytes > 0)};
}

std::optional<Overrun> overrun(const PlanReport& plan, const Capacity& capacity) {
  if (plan.ranks.empty()) {
    return std::nullopt;
  }
  std::optional<Overrun> over = device_overrun(plan, capacity);
  over = over ? over : budget_overrun(plan, capacity);
  over = over ? over : host_limit_overrun(plan, capacity);
  return over ? over : machine_overrun(plan, capacity);
}

}  // namespace colossal
