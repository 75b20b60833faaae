// How does the first step finish a plan of gemini.placement auto? All ranks measure, agree and move
// the same.
#include "core/error.hpp"
#include "core/hash.hpp"
#include "memory/detail/store_impl.hpp"
#include "memory/device_memory.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace colossal {

using detail::BlockRecord;
using detail::index;

namespace {

/// The largest of all ranks, element by element.
std::vector<std::int64_t> largest(const std::vector<std::int64_t>& mine, const Comm& comm) {
  at::Tensor values = at::empty({std::ssize(mine)}, at::kLong);
  std::ranges::copy(mine, values.mutable_data_ptr<std::int64_t>());
  comm.all_reduce(values, ReduceOp::max).wait();
  const auto* const begin = values.const_data_ptr<std::int64_t>();
  return {begin, begin + mine.size()};
}

/// Every rank decides on its own; a rank that decides otherwise would wait for the others for ever.
void check_equal(const std::string& mine, std::string_view what, const Comm& comm) {
  const std::vector<std::string> all = comm.gather_text(sha256(mine));
  const auto other =
      std::ranges::find_if(all, [&](const std::string& text) { return text != all.front(); });
  check(other == all.end(),
        ErrorKind::internal,
        "plan-disagreement",
        "rank {} of group '{}' has another {} than rank 0",
        comm.ranks()[static_cast<std::size_t>(other == all.end() ? 0 : other - all.begin())],
        comm.name(),
        what);
}

}  // namespace

/// Bytes gathered weights may take now; unset: those of the current blocks and of the next ones.
std::optional<std::int64_t> ChunkStore::Impl::cache_budget() const {
  if (!plan.measured) {
    return plan.cache_bytes;
  }
  // Budgets belong to the measured step: another one keeps only what its blocks need.
  if (!trace.known() || budgets.size() != trace.recorded().size()) {
    return 0;
  }
  return budgets[std::max<std::size_t>(trace.position(), 1) - 1];
}

/// Device memory of the store apart from gathered weights and whole gradients.
std::int64_t ChunkStore::Impl::home_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& chunk : chunks) {
    bytes += chunk->device_bytes();
  }
  return bytes;
}

std::int64_t ChunkStore::Impl::needed_bytes(const BlockRecord& block) const {
  std::int64_t bytes = 0;
  for (const int chunk : block.chunks) {
    bytes += plan.chunks[index(chunk)].resident ? 0 : chunks[index(chunk)]->gathered_bytes();
  }
  return bytes;
}

void ChunkStore::Impl::observe(bool next_acquisition) {
  if (measuring && trace.active()) {
    measuring->observe(home_bytes() + cached_bytes);
    if (next_acquisition) {
      measuring->next();
    }
  }
}

/// Steps have another length than the measured one, and two of them were equal: it may last.
void ChunkStore::Impl::measure_again_if_due() {
  const bool decided = !budgets.empty() && !measuring;
  if (decided && trace.steady() && trace.recorded().size() != budgets.size()) {
    measuring.emplace();
  }
}

/// Decides where optimizers live and what gathered weights may take, from the first step; from a
/// later one, whose length is another, only the latter.
void ChunkStore::Impl::follow_measurement() {
  if (non_model.empty()) {
    return;
  }
  measuring.reset();
  const std::optional<std::int64_t> limit = device_memory().limit();
  const Comm& comm = context.comm(plan.chunks.front().reduce_axes);
  check_equal(fmt::format("{}", fmt::join(trace.recorded(), " ")), "order of blocks", comm);
  check(limit.has_value(),
        ErrorKind::internal,
        "device-size",
        "a plan that follows the device's free memory needs its size");
  detail::MeasuredInput input{.device_bytes = *limit,
                              .home_bytes = largest({home_bytes()}, comm).front(),
                              .shares = *plan.measured,
                              .non_model = largest(std::exchange(non_model, {}), comm),
                              .needs = {},
                              .optimizer_bytes = {},
                              .weight_bytes = {}};
  for (const int block : trace.recorded()) {
    input.needs.push_back(needed_bytes(blocks[index(block)]));
  }
  const bool first = budgets.empty();
  for (const auto& chunk : chunks) {
    input.optimizer_bytes.push_back(first ? chunk->optimizer_bytes() : 0);
    input.weight_bytes.push_back(first ? chunk->weight_bytes() : 0);
  }
  detail::MeasuredDecision decision = detail::decide(input);
  check_equal(fmt::format("{} | {} | {} | {}",
                          fmt::join(decision.budgets, " "),
                          fmt::join(decision.to_device, " "),
                          fmt::join(decision.homes_to_device, " "),
                          decision.slack),
              "memory plan",
              comm);
  if (!first && decision.slack < 0) {  // it ran, in more than may be used
    budgets.assign(input.needs.size(), 0);
    return;
  }
  check_room(input, decision);
  budgets = std::move(decision.budgets);
  move_homes(decision);
}

/// Every rank ends alike: what it decides from is agreed.
void ChunkStore::Impl::check_room(const detail::MeasuredInput& input,
                                  const detail::MeasuredDecision& decision) {
  if (decision.slack >= 0) {
    return;
  }
  const std::size_t at = decision.tightest;
  const std::int64_t missing = counters.missing_bytes = -decision.slack;
  const double more = std::ceil(static_cast<double>(missing) / usable_share(input.shares));
  fail(
      ErrorKind::memory,
      "budget-too-small",
      "block '{}', acquisition {} of a step, needs {} bytes of gathered weights beside {} bytes of "
      "activations, gradients and other tensors, and {} of the device's {} bytes may be used: {} "
      "bytes are missing\n  fix   a device of {} bytes",
      blocks[index(trace.recorded()[at])].name,
      at,
      input.needs[at],
      input.home_bytes + input.non_model[at],
      detail::usable_bytes(input),
      input.device_bytes,
      missing,
      input.device_bytes + static_cast<std::int64_t>(more));
}

void ChunkStore::Impl::move_homes(const detail::MeasuredDecision& decision) {
  detail::follow(decision, options.master == options.compute, context.mesh(), plan);
  for (const int chunk : decision.to_device) {
    detail::Chunk& it = *chunks[index(chunk)];
    it.move_to_device(plan.chunks[index(chunk)].param_home == Tier::device);
    shards[index(chunk)] = it.shard();
  }
}

}  // namespace colossal
