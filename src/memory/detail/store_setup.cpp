// How does a store come to be? Parameters are listed, planned, given memory and first values.
#include "core/error.hpp"
#include "memory/accounting.hpp"
#include "memory/detail/store_impl.hpp"

#include <algorithm>
#include <utility>

namespace colossal {

using detail::BlockRecord;
using detail::index;

ChunkStore::Impl::Impl(std::span<const Block> block_list,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const StoreOptions& store_options,
                       const ParallelContext& parallel)
    : context(parallel),
      options(store_options),
      states(optimizer_states.begin(), optimizer_states.end()) {
  std::vector<std::vector<Parameter*>> parameters;
  for (const Block& block : block_list) {
    parameters.push_back(block.parameters);
  }
  ParamUses uses = list_uses(parameters);
  plan = planner.plan(uses.specs, uses.blocks, context.mesh());
  // What lent gradients of a step give back is for the activations of the next one.
  const bool lends = options.lend_grads && !plan.shard_grads;
  const bool pool_keeps = !plan.measured && !plan.cache_bytes && !lends;
  pool = std::make_unique<BlockPool>(context.device(), pool_keeps);
  if (context.device().is_cuda()) {
    copies_in = std::make_unique<cuda::CopyStream>(context.device());
    copies_out = std::make_unique<cuda::CopyStream>(context.device());
  }
  std::vector<std::vector<int>> used = chunks_of_blocks(plan, uses.specs, uses.blocks);
  collect(block_list, std::move(uses));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].chunks = used[i];
  }
  const std::vector<int> owner_of = owner_indices(specs);
  number_owners(owner_of);
  shared =
      std::make_unique<detail::ChunkShared>(detail::ChunkShared{.context = context,
                                                                .options = options,
                                                                .owners = owners,
                                                                .optimizer_states = states,
                                                                .pool = *pool,
                                                                .shard_grads = plan.shard_grads,
                                                                .to_device = copies_in.get(),
                                                                .to_host = copies_out.get()});
  for (const ChunkSpec& chunk : plan.chunks) {
    chunks.push_back(std::make_unique<detail::Chunk>(chunk, *shared));
    shards.push_back(chunks.back()->shard());
  }
  if (options.nvme && options.training && !states.empty()) {
    options.nvme->rank = context.mesh().rank();
    disk = std::make_unique<detail::StateDisk>(
        *options.nvme, plan, shards, detail::StateNames{states, options.state});
  }
  check_budget();
  attach_tied(owner_of);
  progress.resize(plan.chunks.size());
  trace = detail::StepTrace(std::move(used));
  if (plan.measured && options.training) {
    measuring.emplace();
  }
}

/// Lists every parameter once and notes which block uses which.
void ChunkStore::Impl::collect(std::span<const Block> block_list, ParamUses uses) {
  for (std::size_t i = 0; i < block_list.size(); ++i) {
    blocks.push_back(
        {.name = block_list[i].name, .params = std::move(uses.blocks[i]), .chunks = {}});
  }
  all = std::move(uses.parameters);
  specs = std::move(uses.specs);
  users.resize(all.size());
}

/// Lists the owners and lets the plan count in that list, as Segment::param does.
void ChunkStore::Impl::number_owners(const std::vector<int>& owner_of) {
  std::vector<int> number(all.size());
  for (int i = 0; i < std::ssize(all); ++i) {
    if (owner_of[index(i)] == i) {
      number[index(i)] = static_cast<int>(owners.size());
      owners.push_back(all[index(i)]);
    }
  }
  for (ChunkSpec& chunk : plan.chunks) {
    for (int& param : chunk.params) {
      param = number[index(param)];
    }
  }
}

/// A tied parameter is the same leaf, so its uses add to the same gradient.
void ChunkStore::Impl::attach_tied(const std::vector<int>& owner_of) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (owner_of[i] != static_cast<int>(i)) {
      all[i]->attach(all[index(owner_of[i])]->leaf());
      all[i]->set_available(false);
    }
  }
}

/// A block whose own chunks exceed the budget could never run; what helps the neediest helps all.
void ChunkStore::Impl::check_budget() const {
  const auto needs = [this](const BlockRecord& block) { return needed_bytes(block); };
  const auto neediest = std::ranges::max_element(blocks, {}, needs);
  if (!plan.cache_bytes || neediest == blocks.end() || needs(*neediest) <= *plan.cache_bytes) {
    return;
  }
  const std::int64_t bytes = needs(*neediest);
  fail(ErrorKind::memory,
       "budget-too-small",
       "block '{}' needs {} bytes of gathered weights at once and the budget is {}: {} bytes are "
       "missing\n  fix   parallel.gemini.const_budget: {}",
       neediest->name,
       bytes,
       *plan.cache_bytes,
       bytes - *plan.cache_bytes,
       bytes);
}

}  // namespace colossal
