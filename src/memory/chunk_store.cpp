// In which order are chunks gathered, reduced and dropped? Blocks ask; the plan and the last step's
// trace say.
#include "memory/chunk_store.hpp"

#include "core/error.hpp"
#include "memory/detail/chunk.hpp"
#include "memory/detail/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

namespace colossal {
namespace {

enum class GradState : std::uint8_t { empty, accumulating, reducing, ready };

std::string_view name(GradState state) {
  switch (state) {
    case GradState::empty:
      return "empty";
    case GradState::accumulating:
      return "accumulating";
    case GradState::reducing:
      return "reducing";
    case GradState::ready:
      return "ready";
  }
  return "unknown";
}

/// What changes about a chunk during a step.
struct Progress {
  GradState state = GradState::empty;
  int blocks_left = 0;  ///< blocks that have not reported what the next reduction waits for
  int users = 0;        ///< acquisitions without release
};

/// A block as the store sees it.
struct BlockRecord {
  std::string name;
  std::vector<int> params;  ///< indices into all parameters
  std::vector<int> chunks;  ///< each once
  bool reported = false;    ///< its last gradients of this step are in
};

/// Reductions of shard_grads under way: each holds a whole gradient.
constexpr std::size_t kMaxReducing = 2;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

std::vector<std::vector<int>> chunks_of(const std::vector<BlockRecord>& blocks) {
  std::vector<std::vector<int>> chunks;
  chunks.reserve(blocks.size());
  for (const BlockRecord& block : blocks) {
    chunks.push_back(block.chunks);
  }
  return chunks;
}

}  // namespace

struct ChunkStore::Impl {
  Impl(std::span<const Block> block_list,
       const ChunkPlanner& planner,
       std::span<const std::string_view> optimizer_states,
       const StoreOptions& store_options,
       const ParallelContext& parallel);

  void collect(std::span<const Block> block_list, ParamUses uses);
  void number_owners(const std::vector<int>& owner_of);
  void attach_tied(const std::vector<int>& owner_of);
  void find_chunks_of_blocks(const std::vector<int>& owner_of);
  void check_budget() const;

  BlockRecord& block_at(int block);
  std::string label(int chunk) const;
  void check_state(int chunk,
                   std::initializer_list<GradState> allowed,
                   std::string_view action) const;

  void gather(int chunk);
  void gather_ahead();
  bool make_room(std::int64_t bytes, bool may_drop);
  void drop(int chunk);
  void drop_unneeded(const BlockRecord& block);
  void open_gradients(const BlockRecord& block);

  void count_reports();
  void launch_complete();
  void finish_reduce(int chunk);

  const ParallelContext& context;
  StoreOptions options;
  BlockPool pool;
  std::vector<Parameter*> all;     // in order of first use, tied ones too
  std::vector<ParamSpec> specs;    // of all
  std::vector<int> users;          // of all: acquired and not yet released
  std::vector<Parameter*> owners;  // those with memory of their own
  std::vector<BlockRecord> blocks;
  ChunkPlan plan;  // parameters numbered as in owners
  std::vector<std::string_view> states;
  std::unique_ptr<detail::ChunkShared> shared;
  std::vector<std::unique_ptr<detail::Chunk>> chunks;
  std::vector<FlatShard> shards;
  std::vector<Progress> progress;
  int next_launch = 0;       // chunks before it are reducing or ready
  std::deque<int> reducing;  // chunks whose reduction runs, oldest first
  detail::StepTrace trace{{}};
  std::int64_t cached_bytes = 0;  // of gathered chunks that are not resident
  StoreCounters counters;
};

ChunkStore::Impl::Impl(std::span<const Block> block_list,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const StoreOptions& store_options,
                       const ParallelContext& parallel)
    : context(parallel),
      options(store_options),
      pool(parallel.device()),
      states(optimizer_states.begin(), optimizer_states.end()) {
  std::vector<std::vector<Parameter*>> parameters;
  for (const Block& block : block_list) {
    parameters.push_back(block.parameters);
  }
  ParamUses uses = list_uses(parameters);
  plan = planner.plan(uses.specs, uses.blocks, context.mesh());
  collect(block_list, std::move(uses));
  const std::vector<int> owner_of = owner_indices(specs);
  find_chunks_of_blocks(owner_of);
  number_owners(owner_of);
  shared =
      std::make_unique<detail::ChunkShared>(detail::ChunkShared{.context = context,
                                                                .options = options,
                                                                .owners = owners,
                                                                .optimizer_states = states,
                                                                .pool = pool,
                                                                .shard_grads = plan.shard_grads});
  for (const ChunkSpec& chunk : plan.chunks) {
    chunks.push_back(std::make_unique<detail::Chunk>(chunk, *shared));
    shards.push_back(chunks.back()->shard());
  }
  check_budget();
  attach_tied(owner_of);
  progress.resize(plan.chunks.size());
  trace = detail::StepTrace(chunks_of(blocks));
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
    std::int64_t bytes = 0;
    for (const int chunk : block.chunks) {
      bytes += plan.chunks[index(chunk)].resident ? 0 : chunks[index(chunk)]->gathered_bytes();
    }
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

BlockRecord& ChunkStore::Impl::block_at(int block) {
  check(block >= 0 && block < std::ssize(blocks),
        ErrorKind::internal,
        "block-index",
        "block {} does not exist, the store has {}",
        block,
        blocks.size());
  return blocks[index(block)];
}

/// "chunk 3 (blocks.1.mlp.up.weight ...)".
std::string ChunkStore::Impl::label(int chunk) const {
  const int first = plan.chunks[index(chunk)].params.front();
  return fmt::format("chunk {} ({} ...)", chunk, owners[index(first)]->spec().name);
}

void ChunkStore::Impl::check_state(int chunk,
                                   std::initializer_list<GradState> allowed,
                                   std::string_view action) const {
  const GradState state = progress[index(chunk)].state;
  check(std::ranges::find(allowed, state) != allowed.end(),
        ErrorKind::internal,
        "chunk-state",
        "cannot {}: the gradients of {} are {}",
        action,
        label(chunk),
        name(state));
}

/// Drops gathered chunks, the one needed last first (Belady), until `bytes` more fit into the
/// budget. Without `may_drop` only tells whether they fit.
bool ChunkStore::Impl::make_room(std::int64_t bytes, bool may_drop) {
  while (plan.cache_bytes && cached_bytes + bytes > *plan.cache_bytes) {
    int victim = -1;
    for (int chunk = 0; may_drop && chunk < std::ssize(chunks); ++chunk) {
      const bool droppable = !plan.chunks[index(chunk)].resident &&
                             chunks[index(chunk)]->gathered() && progress[index(chunk)].users == 0;
      if (droppable && (victim < 0 || trace.next_use(chunk) >= trace.next_use(victim))) {
        victim = chunk;
      }
    }
    if (victim < 0) {
      return false;
    }
    drop(victim);
  }
  return true;
}

void ChunkStore::Impl::gather(int chunk) {
  detail::Chunk& it = *chunks[index(chunk)];
  it.start_gather();
  cached_bytes += it.gathered_bytes();
  ++counters.gathers;
  counters.gathered_bytes += it.gathered_bytes();
  if (!options.overlap) {
    it.finish_gather();
  }
}

/// Starts the gathers of what the next blocks need, as far as the budget goes.
void ChunkStore::Impl::gather_ahead() {
  for (const int block : trace.next(plan.prefetch)) {
    for (const int chunk : blocks[index(block)].chunks) {
      if (chunks[index(chunk)]->gathered()) {
        continue;
      }
      if (!make_room(chunks[index(chunk)]->gathered_bytes(), false)) {
        return;
      }
      gather(chunk);
    }
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
    const bool stays = trace.known() && (plan.cache_bytes || trace.used_soon(chunk, plan.prefetch));
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
  counters.peak_borrowed_bytes = std::max(counters.peak_borrowed_bytes, pool.peak_bytes());
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
    if (plan.shard_grads && reducing.size() >= kMaxReducing) {
      finish_reduce(reducing.front());
    }
    chunks[index(next_launch)]->start_reduce();
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

ChunkStore::ChunkStore(std::span<const Block> blocks,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const StoreOptions& options,
                       const ParallelContext& context)
    : impl_(std::make_unique<Impl>(blocks, planner, optimizer_states, options, context)) {}

ChunkStore::~ChunkStore() = default;

void ChunkStore::acquire(int block, BlockUse use) {
  const BlockRecord& record = impl_->block_at(block);
  impl_->trace.acquire(block);
  for (const int chunk : record.chunks) {
    ++impl_->progress[index(chunk)].users;
  }
  for (const int chunk : record.chunks) {
    if (!impl_->chunks[index(chunk)]->gathered()) {
      impl_->make_room(impl_->chunks[index(chunk)]->gathered_bytes(), true);
      impl_->gather(chunk);
    }
  }
  impl_->gather_ahead();
  if (use == BlockUse::backward) {
    impl_->open_gradients(record);
  }
  for (const int chunk : record.chunks) {
    impl_->chunks[index(chunk)]->finish_gather();
  }
  for (const int param : record.params) {
    ++impl_->users[index(param)];
    impl_->all[index(param)]->set_available(true);
  }
}

void ChunkStore::release(int block) {
  const BlockRecord& record = impl_->block_at(block);
  for (const int param : record.params) {
    int& users = impl_->users[index(param)];
    check(users > 0,
          ErrorKind::internal,
          "chunk-state",
          "block '{}' releases parameter '{}', which nobody has acquired",
          record.name,
          impl_->specs[index(param)].name);
    --users;
    impl_->all[index(param)]->set_available(users > 0);
  }
  for (const int chunk : record.chunks) {
    --impl_->progress[index(chunk)].users;
  }
  impl_->drop_unneeded(record);
}

void ChunkStore::begin_gradients() {
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::empty, GradState::ready}, "begin new gradients");
  }
  for (std::size_t i = 0; i < impl_->chunks.size(); ++i) {
    impl_->chunks[i]->begin_gradients();
    impl_->progress[i].state = GradState::accumulating;
  }
  impl_->count_reports();
  impl_->counters = {};
  impl_->pool.reset_peak();
  impl_->trace.begin();
}

void ChunkStore::gradients_ready(int block, bool last) {
  BlockRecord& record = impl_->block_at(block);
  check(!record.reported,
        ErrorKind::internal,
        "chunk-state",
        "block '{}' reports gradients after its last ones of this step",
        record.name);
  for (const int chunk : record.chunks) {
    impl_->check_state(
        chunk, {GradState::accumulating}, "add the gradients of block '" + record.name + "'");
  }
  record.reported = last;
  if (!last && !impl_->plan.shard_grads) {
    return;
  }
  for (const int chunk : record.chunks) {
    --impl_->progress[index(chunk)].blocks_left;
  }
  impl_->launch_complete();
  if (!last && impl_->next_launch == std::ssize(impl_->chunks)) {
    impl_->count_reports();  // for the next micro-batch
  }
}

void ChunkStore::finish_gradients() {
  for (const BlockRecord& block : impl_->blocks) {
    check(block.reported || block.chunks.empty(),
          ErrorKind::internal,
          "chunk-state",
          "block '{}' never reported its last gradients of this step",
          block.name);
  }
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::reducing}, "finish gradients");
    impl_->finish_reduce(chunk);
    impl_->progress[index(chunk)].state = GradState::ready;
    const int unused =
        impl_->options.unused_is_zero ? -1 : impl_->chunks[index(chunk)]->first_unused();
    check(unused < 0,
          ErrorKind::internal,
          "param-no-gradient",
          "no backward of this step reached parameter '{}'; with parallel.zero.unused_params: zero "
          "its gradient counts as zero",
          impl_->owners[index(std::max(unused, 0))]->spec().name);
  }
  impl_->trace.end();
  impl_->counters.peak_borrowed_bytes =
      std::max(impl_->counters.peak_borrowed_bytes, impl_->pool.peak_bytes());
}

void ChunkStore::publish() {
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::empty, GradState::ready}, "publish parameters");
    impl_->progress[index(chunk)].state = GradState::empty;
    if (!impl_->plan.chunks[index(chunk)].resident && impl_->chunks[index(chunk)]->gathered()) {
      impl_->drop(chunk);  // its values are old now
    }
  }
  for (const auto& chunk : impl_->chunks) {
    chunk->start_publish(true);
  }
  for (const auto& chunk : impl_->chunks) {
    chunk->finish_publish();
  }
}

std::span<FlatShard> ChunkStore::shards() noexcept {
  return impl_->shards;
}

std::span<Parameter* const> ChunkStore::parameters() const noexcept {
  return impl_->owners;
}

StoreCounters ChunkStore::counters() const noexcept {
  return impl_->counters;
}

const ChunkPlan& ChunkStore::plan() const noexcept {
  return impl_->plan;
}

}  // namespace colossal
