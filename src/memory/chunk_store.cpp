// How do parameters live in flat chunks? Leaves are views of them, and gradients add up in views
// beside them.
#include "memory/chunk_store.hpp"

#include "comm/comm.hpp"
#include "core/error.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
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
  int blocks_left = 0;  ///< blocks that have not reported their last gradients
  Pending reduction;
};

/// A block as the store sees it.
struct BlockUse {
  std::string name;
  std::vector<int> params;  ///< indices into all parameters
  std::vector<int> chunks;  ///< each once
  bool reported = false;    ///< its last gradients of this step are in
};

at::Tensor allocate(std::int64_t count, const ParallelContext& context) {
  const at::TensorOptions options = at::TensorOptions(context.dtype()).device(context.device());
  try {
    return at::zeros({count}, options);
  } catch (const c10::Error& error) {
    fail(ErrorKind::memory,
         "out-of-memory",
         "cannot allocate {} bytes for a chunk of {} elements: {}",
         count * static_cast<std::int64_t>(options.dtype().itemsize()),
         count,
         error.what_without_backtrace());
  }
}

/// A leaf of autograd on this memory. set_data gives it its own version counter: the optimizer's
/// writes to the chunk do not trip autograd's checks of saved tensors. AccumulateGrad adds into the
/// gradient that is already there.
at::Tensor make_leaf(const at::Tensor& data, const at::Tensor& grad) {
  at::Tensor leaf = at::empty({0}, data.options());
  leaf.set_data(data);
  leaf.requires_grad_(true);
  leaf.mutable_grad() = grad;
  return leaf;
}

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

struct ChunkStore::Impl {
  Impl(std::span<const Block> block_list,
       const ChunkPlanner& planner,
       std::span<const std::string_view> optimizer_states,
       const ParallelContext& parallel);

  void collect(std::span<const Block> block_list, ParamUses uses);
  void number_owners(const std::vector<int>& owner_of);
  void allocate_chunk(const ChunkSpec& chunk, std::span<const std::string_view> optimizer_states);
  void attach(const ChunkSpec& chunk, FlatShard& shard);
  void attach_tied(const std::vector<int>& owner_of);
  void find_chunks_of_blocks(const std::vector<int>& owner_of);

  BlockUse& block_at(int block);
  std::string label(int chunk) const;
  void check_state(int chunk,
                   std::initializer_list<GradState> allowed,
                   std::string_view action) const;
  void launch_complete();

  const ParallelContext& context;
  std::vector<Parameter*> all;     // in order of first use, tied ones too
  std::vector<ParamSpec> specs;    // of all
  std::vector<int> users;          // of all: acquired and not yet released
  std::vector<Parameter*> owners;  // those with memory of their own
  std::vector<BlockUse> blocks;
  ChunkPlan plan;                    // parameters numbered as in owners
  at::Tensor gradients;              // of all chunks, one behind the other: zeroed in one go
  std::int64_t gradients_given = 0;  // elements of it that shards have
  std::vector<FlatShard> shards;
  std::vector<Progress> progress;
  int next_launch = 0;  // chunks before it are reducing or ready
};

ChunkStore::Impl::Impl(std::span<const Block> block_list,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const ParallelContext& parallel)
    : context(parallel) {
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
  std::int64_t total_numel = 0;
  for (const ChunkSpec& chunk : plan.chunks) {
    total_numel += chunk.numel;
  }
  gradients = allocate(total_numel, context);
  for (const ChunkSpec& chunk : plan.chunks) {
    allocate_chunk(chunk, optimizer_states);
  }
  attach_tied(owner_of);
  progress.resize(plan.chunks.size());
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
  for (BlockUse& block : blocks) {
    std::set<int> chunks;
    for (const int param : block.params) {
      chunks.insert(chunk_of[index(owner_of[index(param)])]);
    }
    block.chunks.assign(chunks.begin(), chunks.end());
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

void ChunkStore::Impl::allocate_chunk(const ChunkSpec& chunk,
                                      std::span<const std::string_view> optimizer_states) {
  FlatShard& shard = shards.emplace_back();
  shard.master = allocate(chunk.numel, context);
  shard.grad = gradients.narrow(0, gradients_given, chunk.numel);
  gradients_given += chunk.numel;
  for (const std::string_view state : optimizer_states) {
    shard.state.emplace(state, allocate(chunk.numel, context));
  }
  attach(chunk, shard);
}

void ChunkStore::Impl::attach(const ChunkSpec& chunk, FlatShard& shard) {
  for (std::size_t i = 0; i < chunk.params.size(); ++i) {
    Parameter& parameter = *owners[index(chunk.params[i])];
    const Shape shape =
        local_shape(parameter.spec().layout, parameter.spec().padded, context.mesh());
    const std::int64_t offset = chunk.offsets[i];
    at::Tensor data = shard.master.narrow(0, offset, numel(shape)).view(shape);
    initialize(data, parameter.spec(), context);
    parameter.attach(make_leaf(data, shard.grad.narrow(0, offset, numel(shape)).view(shape)));
    parameter.set_available(false);
    shard.segments.push_back(
        {.param = chunk.params[i], .begin = 0, .end = numel(shape), .offset = offset});
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

BlockUse& ChunkStore::Impl::block_at(int block) {
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

/// Starts the reductions of complete chunks, in plan order on every rank whatever the order of
/// reports.
void ChunkStore::Impl::launch_complete() {
  for (; next_launch < std::ssize(progress) && progress[index(next_launch)].blocks_left == 0;
       ++next_launch) {
    Progress& chunk = progress[index(next_launch)];
    const Comm& comm = context.comm(plan.chunks[index(next_launch)].reduce_axes);
    chunk.reduction = comm.all_reduce(shards[index(next_launch)].grad);
    chunk.state = GradState::reducing;
  }
}

ChunkStore::ChunkStore(std::span<const Block> blocks,
                       const ChunkPlanner& planner,
                       std::span<const std::string_view> optimizer_states,
                       const ParallelContext& context)
    : impl_(std::make_unique<Impl>(blocks, planner, optimizer_states, context)) {}

ChunkStore::~ChunkStore() = default;

void ChunkStore::acquire(int block) {
  for (const int param : impl_->block_at(block).params) {
    ++impl_->users[index(param)];
    impl_->all[index(param)]->set_available(true);
  }
}

void ChunkStore::release(int block) {
  const BlockUse& use = impl_->block_at(block);
  for (const int param : use.params) {
    int& users = impl_->users[index(param)];
    check(users > 0,
          ErrorKind::internal,
          "chunk-state",
          "block '{}' releases parameter '{}', which nobody has acquired",
          use.name,
          impl_->specs[index(param)].name);
    --users;
    impl_->all[index(param)]->set_available(users > 0);
  }
}

void ChunkStore::begin_gradients() {
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::empty, GradState::ready}, "begin new gradients");
  }
  impl_->gradients.zero_();
  for (Progress& chunk : impl_->progress) {
    chunk.state = GradState::accumulating;
    chunk.blocks_left = 0;
  }
  for (BlockUse& block : impl_->blocks) {
    block.reported = false;
    for (const int chunk : block.chunks) {
      ++impl_->progress[index(chunk)].blocks_left;
    }
  }
  impl_->next_launch = 0;
}

void ChunkStore::gradients_ready(int block, bool last) {
  BlockUse& use = impl_->block_at(block);
  check(!use.reported,
        ErrorKind::internal,
        "chunk-state",
        "block '{}' reports gradients after its last ones of this step",
        use.name);
  for (const int chunk : use.chunks) {
    impl_->check_state(
        chunk, {GradState::accumulating}, "add the gradients of block '" + use.name + "'");
  }
  if (!last) {
    return;
  }
  use.reported = true;
  for (const int chunk : use.chunks) {
    --impl_->progress[index(chunk)].blocks_left;
  }
  impl_->launch_complete();
}

void ChunkStore::finish_gradients() {
  for (const BlockUse& block : impl_->blocks) {
    check(block.reported || block.chunks.empty(),
          ErrorKind::internal,
          "chunk-state",
          "block '{}' never reported its last gradients of this step",
          block.name);
  }
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::reducing}, "finish gradients");
    impl_->progress[index(chunk)].reduction.wait();
    impl_->progress[index(chunk)].state = GradState::ready;
  }
}

void ChunkStore::publish() {
  for (int chunk = 0; chunk < std::ssize(impl_->progress); ++chunk) {
    impl_->check_state(chunk, {GradState::empty, GradState::ready}, "publish parameters");
    impl_->progress[index(chunk)].state = GradState::empty;
  }
}

std::span<FlatShard> ChunkStore::shards() noexcept {
  return impl_->shards;
}

std::span<Parameter* const> ChunkStore::parameters() const noexcept {
  return impl_->owners;
}

const ChunkPlan& ChunkStore::plan() const noexcept {
  return impl_->plan;
}

}  // namespace colossal
