// How does a store come to be? Parameters are listed, planned, given memory and first values.
#include "core/error.hpp"
#include "memory/detail/store_impl.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace colossal {

using detail::BlockRecord;
using detail::index;

namespace {

std::vector<std::vector<int>> chunks_of(const std::vector<BlockRecord>& blocks) {
  std::vector<std::vector<int>> chunks;
  chunks.reserve(blocks.size());
  for (const BlockRecord& block : blocks) {
    chunks.push_back(block.chunks);
  }
  return chunks;
}

}  // namespace

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
  pool = std::make_unique<BlockPool>(context.device(), !plan.measured && !plan.cache_bytes);
  collect(block_list, std::move(uses));
  const std::vector<int> owner_of = owner_indices(specs);
  find_chunks_of_blocks(owner_of);
  number_owners(owner_of);
  shared =
      std::make_unique<detail::ChunkShared>(detail::ChunkShared{.context = context,
                                                                .options = options,
                                                                .owners = owners,
                                                                .optimizer_states = states,
                                                                .pool = *pool,
                                                                .shard_grads = plan.shard_grads});
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
  trace = detail::StepTrace(chunks_of(blocks));
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

void ChunkStore::Impl::find_chunks_of_blocks(const std::vector<int>& owner_of) {
  std::vector<int> chunk_of(all.size());
  for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
    for (const int param : plan.chunks[index(chunk)].params) {
      chunk_of[index(param)] = chunk;
    }
  }
  for (BlockRecord& block : blocks) {
    std::set<int> used;
    for (const int param : block.params) {
      used.insert(chunk_of[index(owner_of[index(param)])]);
    }
    block.chunks.assign(used.begin(), used.end());
  }
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

/// A block whose own chunks exceed the budget could never run.
void ChunkStore::Impl::check_budget() const {
  for (const BlockRecord& block : blocks) {
    const std::int64_t bytes = needed_bytes(block);
    check(
        !plan.cache_bytes || bytes <= *plan.cache_bytes,
        ErrorKind::memory,
        "budget-too-small",
        "block '{}' needs {} bytes of gathered weights at once and the budget is {}: {} bytes are "
        "missing\n  fix   a larger parallel.gemini.const_budget, a smaller "
        "parallel.gemini.chunk_size, or placement: static",
        block.name,
        bytes,
        plan.cache_bytes.value_or(0),
        bytes - plan.cache_bytes.value_or(0));
  }
}

}  // namespace colossal
