// When are chunks gathered, dropped and reduced? As blocks ask, as the last step's trace says,
// within the budget.
#include "core/error.hpp"
#include "memory/detail/store_impl.hpp"

#include <algorithm>

namespace colossal {

using detail::BlockRecord;
using detail::GradState;
using detail::index;
using detail::Progress;

/// Drops gathered chunks, the one needed last first (Belady), until `bytes` more fit into the
/// budget. Without `may_drop` only tells whether they fit.
bool ChunkStore::Impl::make_room(std::int64_t bytes, bool may_drop) {
  const std::optional<std::int64_t> budget = cache_budget();
  while (budget && cached_bytes + bytes > *budget) {
    std::vector<int> idle;
    for (int chunk = 0; may_drop && chunk < std::ssize(chunks); ++chunk) {
      const bool droppable = !plan.chunks[index(chunk)].resident &&
                             chunks[index(chunk)]->gathered() && progress[index(chunk)].users == 0;
      idle.resize(idle.size() + (droppable ? 1 : 0), chunk);
    }
    if (idle.empty()) {
      return false;
    }
    drop(trace.needed_last(idle));
  }
  return true;
}

void ChunkStore::Impl::gather(int chunk) {
  detail::Chunk& it = *chunks[index(chunk)];
  it.start_gather();
  cached_bytes += it.gathered_bytes();
  ++counters.gathers;
  counters.gathered_bytes += it.gathered_bytes();
  counters.crossed_bytes += it.crossing().gather;
  if (!options.overlap) {
    it.finish_gather();
  }
}

/// Starts the gathers of what the next blocks need, as far as the budget goes.
void ChunkStore::Impl::gather_ahead() {
  for (const int chunk : trace.chunks_ahead(plan.prefetch)) {
    if (chunks[index(chunk)]->gathered()) {
      continue;
    }
    if (!make_room(chunks[index(chunk)]->gathered_bytes(), false)) {
      return;
    }
    gather(chunk);
  }
}

void ChunkStore::Impl::drop(int chunk) {
  chunks[index(chunk)]->finish_gather();
  chunks[index(chunk)]->drop();
  cached_bytes -= chunks[index(chunk)]->gathered_bytes();
}

/// What nobody uses now goes, but for what is used soon or may stay within the budget.
void ChunkStore::Impl::drop_unneeded(const BlockRecord& block) {
  for (const int chunk : block.chunks) {
    const bool idle = !plan.chunks[index(chunk)].resident && progress[index(chunk)].users == 0;
    const std::optional<std::int64_t> budget = cache_budget();
    const bool stays =
        trace.known() && (budget ? *budget > 0 : trace.used_soon(chunk, plan.prefetch));
    if (idle && !stays) {
      drop(chunk);
    }
  }
}

/// Memory for the gradients that this block's backward adds to.
void ChunkStore::Impl::open_gradients(const BlockRecord& block) {
  for (const int chunk : block.chunks) {
    if (progress[index(chunk)].state == GradState::reducing) {
      finish_reduce(chunk);  // of the micro-batch before
      progress[index(chunk)].state = GradState::accumulating;
    }
    chunks[index(chunk)]->open_gradients();
  }
  counters.peak_borrowed_bytes = std::max(counters.peak_borrowed_bytes, pool->peak_bytes());
}

/// Every chunk waits for the reports of all blocks that use it.
void ChunkStore::Impl::count_reports() {
  for (Progress& chunk : progress) {
    chunk.blocks_left = 0;
  }
  for (BlockRecord& block : blocks) {
    block.reported = false;
    for (const int chunk : block.chunks) {
      ++progress[index(chunk)].blocks_left;
    }
  }
  next_launch = 0;
}

/// Starts the reductions of complete chunks, in plan order on every rank whatever the order of
/// reports.
void ChunkStore::Impl::launch_complete() {
  for (; next_launch < std::ssize(progress) && progress[index(next_launch)].blocks_left == 0;
       ++next_launch) {
    if (std::ssize(reducing) >= max_reducing(plan, options)) {
      finish_reduce(reducing.front());
    }
    chunks[index(next_launch)]->start_reduce();
    counters.crossed_bytes += chunks[index(next_launch)]->crossing().reduce;
    progress[index(next_launch)].state = GradState::reducing;
    reducing.push_back(next_launch);
    if (!options.overlap) {
      finish_reduce(next_launch);
    }
  }
}

/// Waits for the reductions up to this one's; they end in the order of their start.
void ChunkStore::Impl::finish_reduce(int chunk) {
  while (std::ranges::find(reducing, chunk) != reducing.end()) {
    chunks[index(reducing.front())]->finish_reduce();
    reducing.pop_front();
  }
}

/// `cast`: the 16-bit copies are old, too.
void ChunkStore::Impl::publish(bool cast) {
  for (int chunk = 0; chunk < std::ssize(progress); ++chunk) {
    check_state(chunk, {GradState::empty, GradState::ready}, "publish parameters");
    progress[index(chunk)].state = GradState::empty;
    if (!plan.chunks[index(chunk)].resident && chunks[index(chunk)]->gathered()) {
      drop(chunk);  // its values are old now
    }
  }
  follow_measurement();
  for (const auto& chunk : chunks) {
    chunk->start_publish(cast);
    counters.crossed_bytes += chunk->crossing().publish;
  }
  for (const auto& chunk : chunks) {
    chunk->finish_publish();
  }
}

}  // namespace colossal
