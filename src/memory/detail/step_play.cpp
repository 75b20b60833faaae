// How is a step played? As the store does it: the same order of gathers, drops and reductions.
#include "memory/detail/step_play.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace colossal::detail {
namespace {

std::int64_t size_of(at::ScalarType dtype) {
  return static_cast<std::int64_t>(at::elementSize(dtype));
}

}  // namespace

void PoolBytes::get(std::int64_t bytes) {
  if (const auto fitting = free_.find(bytes); fitting != free_.end()) {
    free_.erase(fitting);
    return;
  }
  held_ -= std::accumulate(free_.begin(), free_.end(), std::int64_t{0});
  free_.clear();
  held_ += bytes;
}

void PoolBytes::put(std::int64_t bytes) {
  if (keeps_) {
    free_.insert(bytes);
  } else {
    held_ -= bytes;
  }
}

StepPlay::StepPlay(const AccountingInput& input,
                   const Mesh& mesh,
                   std::vector<std::int64_t> budgets)
    : input_(input),
      mesh_(mesh),
      budgets_(std::move(budgets)),
      trace_({input.chunks_of_blocks.begin(), input.chunks_of_blocks.end()}),
      pool_(!input.plan.measured && !input.plan.cache_bytes),
      users_(input.plan.chunks.size(), 0),
      blocks_left_(input.plan.chunks.size(), 0) {}

void StepPlay::run(std::int64_t micro_batches) {
  constexpr int kSteps = 3;  // after two the pool has the blocks that it goes on with
  for (int step = 0; step < kSteps; ++step) {
    first_ = step == 0;
    if (step == 1) {
      borrowed_ = activations_ = lent_ = 0;
    }
    gathered_now_ = lent_now_ = 0;
    lending_.clear();
    gathered_.clear();
    trace_.begin();
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      first_batch_ = i == 0;
      play(i + 1 == micro_batches);
      gathered_.push_back(gathered_now_);
    }
    trace_.end();
    if (!reducing_.empty()) {
      finish_reduce(reducing_.back());
    }
    update();
    for (const int chunk : std::vector<int>(here_.begin(), here_.end())) {
      drop(chunk);  // as publish() does
    }
  }
}

void StepPlay::evaluate() {
  for (int block = 0; block < std::ssize(input_.chunks_of_blocks); ++block) {
    acquire(block);
    measure(input_.evaluation_bytes);
    release(block);
  }
}

void StepPlay::play(bool last) {
  const auto num_blocks = static_cast<int>(input_.chunks_of_blocks.size());
  count_reports();
  for (int block = 0; block < num_blocks; ++block) {
    acquire(block);
    measure(activations_of(block).forward);
    release(block);
  }
  for (int block = num_blocks; input_.options.training && block-- > 0;) {
    backward(block, last);
  }
}

void StepPlay::backward(int block, bool last) {
  const BlockActivations activations = activations_of(block);
  acquire(block);
  if (input_.plan.shard_grads) {
    open_gradients(chunks_of(block));
  } else if (input_.options.lend_grads) {
    lend_gradients(chunks_of(block));
  }
  for (int again = activations.runs_again_from; again >= 0 && again <= block; ++again) {
    acquire(again);
    measure(activations_of(again).again);
    release(again);
  }
  measure(activations.backward);
  if (last || input_.plan.shard_grads) {
    report(chunks_of(block), activations.after);
  }
  release(block);
}

const ChunkSpec& StepPlay::spec(int chunk) const {
  return input_.plan.chunks[index(chunk)];
}

std::int64_t StepPlay::weight_bytes(int chunk) const {
  return spec(chunk).numel * size_of(input_.options.compute);
}

std::int64_t StepPlay::staging_bytes(int chunk) const {
  const at::ScalarType dtype =
      input_.plan.shard_grads ? input_.options.compute : input_.options.grad;
  return dtype == input_.options.reduce ? 0 : spec(chunk).numel * size_of(input_.options.reduce);
}

bool StepPlay::sums_in_place(int chunk) const {
  const StoreOptions& options = input_.options;
  return mesh_.size(spec(chunk).reduce_axes) == 1 && spec(chunk).optim_home == Tier::device &&
         first_batch_ && options.grad == options.compute;
}

BlockActivations StepPlay::activations_of(int block) const {
  return input_.activations.empty() ? BlockActivations{} : input_.activations[index(block)];
}

const std::vector<int>& StepPlay::chunks_of(int block) const {
  return input_.chunks_of_blocks[index(block)];
}

std::int64_t StepPlay::missing_bytes(const std::vector<int>& chunks) const {
  std::int64_t bytes = 0;
  for (const int chunk : chunks) {
    bytes += spec(chunk).resident || here_.contains(chunk) ? 0 : weight_bytes(chunk);
  }
  return bytes;
}

std::optional<std::int64_t> StepPlay::cache_budget() const {
  if (budgets_.empty()) {
    return input_.plan.cache_bytes;  // nothing is decided: what a device without a limit would hold
  }
  if (!trace_.known() || budgets_.size() != trace_.recorded().size()) {
    return 0;
  }
  return budgets_[std::max<std::size_t>(trace_.position(), 1) - 1];
}

void StepPlay::measure(std::int64_t activations) {
  const std::int64_t borrowed = pool_.held() + staging_ + updating_;
  if (first_ && !non_model_.empty()) {
    non_model_.back() = std::max(non_model_.back(), borrowed - cached_ + activations);
  }
  if (borrowed + activations + lent_now_ > borrowed_ + activations_ + lent_) {
    borrowed_ = borrowed;
    activations_ = activations;
    lent_ = lent_now_;
  }
}

void StepPlay::gather(int chunk) {
  if (!spec(chunk).resident && here_.insert(chunk).second) {
    gathered_now_ += part_numel(spec(chunk), mesh_) * size_of(input_.options.compute);
    cached_ += weight_bytes(chunk);
    pool_.get(weight_bytes(chunk));
  }
}

void StepPlay::drop(int chunk) {
  if (here_.erase(chunk) > 0) {
    cached_ -= weight_bytes(chunk);
    pool_.put(weight_bytes(chunk));
  }
}

void StepPlay::make_room(const std::vector<int>& needed) {
  const std::optional<std::int64_t> budget = cache_budget();
  const std::int64_t bytes = missing_bytes(needed);
  while (budget && cached_ + bytes > *budget) {
    std::vector<int> idle;
    std::ranges::copy_if(here_, std::back_inserter(idle), [&](int chunk) {
      return users_[index(chunk)] == 0 && std::ranges::find(needed, chunk) == needed.end();
    });
    if (idle.empty()) {
      return;
    }
    drop(trace_.needed_last(idle));
  }
}

void StepPlay::gather_ahead() {
  const std::optional<std::int64_t> budget = cache_budget();
  for (const int chunk : trace_.chunks_ahead(input_.plan.prefetch)) {
    if (spec(chunk).resident || here_.contains(chunk)) {
      continue;
    }
    if (budget && cached_ + weight_bytes(chunk) > *budget) {
      return;
    }
    gather(chunk);
  }
}

void StepPlay::acquire(int block) {
  trace_.acquire(block);
  if (first_) {
    non_model_.push_back(0);
    needs_.push_back(0);
    for (const int chunk : chunks_of(block)) {
      needs_.back() += spec(chunk).resident ? 0 : weight_bytes(chunk);
    }
  }
  make_room(chunks_of(block));
  for (const int chunk : chunks_of(block)) {
    gather(chunk);
    ++users_[index(chunk)];
  }
  gather_ahead();
}

void StepPlay::release(int block) {
  for (const int chunk : chunks_of(block)) {
    const bool idle = --users_[index(chunk)] == 0;
    const std::optional<std::int64_t> budget = cache_budget();
    const bool stays =
        trace_.known() && (budget ? *budget > 0 : trace_.used_soon(chunk, input_.plan.prefetch));
    if (idle && !stays) {
      drop(chunk);
    }
  }
}

void StepPlay::open_gradients(const std::vector<int>& chunks) {
  for (const int chunk : chunks) {
    finish_reduce(chunk);  // of the micro-batch before
    if (open_.insert(chunk).second && !sums_in_place(chunk)) {
      borrowing_.insert(chunk);
      pool_.get(weight_bytes(chunk));
    }
  }
}

/// Whole gradients that stay until the next step begins.
void StepPlay::lend_gradients(const std::vector<int>& chunks) {
  for (const int chunk : chunks) {
    const bool opens = lending_.insert(chunk).second;
    lent_now_ += opens ? spec(chunk).numel * size_of(input_.options.grad) : 0;
  }
}

/// The optimizer's moment, when activations have gone.
void StepPlay::update() {
  const bool here = std::ranges::any_of(
      input_.plan.chunks, [](const ChunkSpec& chunk) { return chunk.optim_home == Tier::device; });
  if (input_.options.training) {
    updating_ = here ? input_.update_bytes : 0;
    measure(0);
    updating_ = 0;
  }
}

void StepPlay::count_reports() {
  std::ranges::fill(blocks_left_, 0);
  for (const std::vector<int>& chunks : input_.chunks_of_blocks) {
    for (const int chunk : chunks) {
      ++blocks_left_[index(chunk)];
    }
  }
  next_ = 0;
}

void StepPlay::report(const std::vector<int>& chunks, std::int64_t activations) {
  for (const int chunk : chunks) {
    --blocks_left_[index(chunk)];
  }
  for (; next_ < std::ssize(blocks_left_) && blocks_left_[index(next_)] == 0; ++next_) {
    if (std::ssize(reducing_) >= max_reducing(input_.plan, input_.options)) {
      finish_reduce(reducing_.front());
    }
    reducing_.push_back(next_);
    staging_ += staging_bytes(next_);
    measure(activations);
    if (!input_.options.overlap) {
      finish_reduce(next_);
    }
  }
}

void StepPlay::finish_reduce(int chunk) {
  while (std::ranges::find(reducing_, chunk) != reducing_.end()) {
    const int first = reducing_.front();
    reducing_.pop_front();
    staging_ -= staging_bytes(first);
    open_.erase(first);
    if (borrowing_.erase(first) > 0) {
      pool_.put(weight_bytes(first));
    }
  }
}

}  // namespace colossal::detail
