// In which order may a store be used? Every call checks the states it needs.
#include "memory/chunk_store.hpp"

#include "core/error.hpp"
#include "memory/detail/store_impl.hpp"
#include "memory/device_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal {

using detail::BlockRecord;
using detail::GradState;
using detail::index;
using detail::Progress;

namespace {

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

}  // namespace

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

ChunkStore::ChunkStore(std::span<const Block> blocks,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const StoreOptions& options,
                       const ParallelContext& context)
    : impl_(std::make_unique<Impl>(blocks, planner, optimizer_states, options, context)) {}

ChunkStore::~ChunkStore() = default;

void ChunkStore::acquire(int block, BlockUse use) {
  const BlockRecord& record = impl_->block_at(block);
  impl_->observe(true);
  impl_->trace.acquire(block);
  for (const int chunk : record.chunks) {
    ++impl_->progress[index(chunk)].users;
  }
  impl_->make_room(0, true);
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
  impl_->observe(false);
  impl_->drop_unneeded(record);
  if (impl_->measuring) {
    device_memory().reset_peak();  // what was dropped is no part of what comes
  }
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
  impl_->pool->reset_peak();
  impl_->measure_again_if_due();
  impl_->trace.begin();
  if (impl_->measuring) {
    impl_->measuring->begin();
  }
}

void ChunkStore::drop_gradients() {
  for (const auto& chunk : impl_->chunks) {
    chunk->drop_gradients();
  }
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
  for (const auto& chunk : impl_->chunks) {
    chunk->land();
  }
  impl_->observe(false);
  if (impl_->measuring) {
    impl_->non_model = impl_->measuring->finish();
  }
  impl_->trace.end();
  impl_->counters.peak_borrowed_bytes =
      std::max(impl_->counters.peak_borrowed_bytes, impl_->pool->peak_bytes());
}

void ChunkStore::abandon_gradients() {
  check(!impl_->plan.shard_grads,
        ErrorKind::internal,
        "chunk-state",
        "cannot abandon gradients that are in borrowed memory");
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->finish_reduce(chunk);
    impl_->progress[index(chunk)] = {};
  }
  for (std::size_t param = 0; param < impl_->all.size(); ++param) {
    impl_->users[param] = 0;
    impl_->all[param]->set_available(false);
  }
}

void ChunkStore::publish() {
  impl_->publish(false);
}

void ChunkStore::publish_masters() {
  impl_->publish(true);
}

void ChunkStore::visit(StateAccess access, const std::function<void(std::span<FlatShard>)>& call) {
  if (impl_->disk == nullptr) {
    call(impl_->shards);
    return;
  }
  impl_->disk->visit(impl_->shards, access, call);
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

HeldBytes ChunkStore::held() const {
  HeldBytes sum{.borrowed = impl_->pool->held_bytes()};
  for (const auto& chunk : impl_->chunks) {
    const HeldBytes held = chunk->held();
    sum.weights += held.weights;
    sum.grads += held.grads + chunk->lent_bytes();
    sum.optimizer += held.optimizer;
    sum.borrowed += held.borrowed - chunk->lent_bytes();  // which are the pool's
  }
  return sum;
}

const ChunkPlan& ChunkStore::plan() const noexcept {
  return impl_->plan;
}

}  // namespace colossal
