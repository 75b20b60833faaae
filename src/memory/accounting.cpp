// What does a step hold at its fullest moment? It is played through with the rules of the store.
#include "memory/accounting.hpp"

#include "core/error.hpp"
#include "memory/detail/trace.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>

namespace colossal {
namespace {

constexpr std::size_t kMaxReducing = 2;  // as the store

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

std::int64_t size_of(at::ScalarType dtype) {
  return static_cast<std::int64_t>(at::elementSize(dtype));
}

/// Adds to the bytes of a place.
void add(ChunkBytes& bytes, Tier home, std::int64_t ChunkBytes::* on_device, std::int64_t amount) {
  (home == Tier::device ? bytes.*on_device : bytes.host) += amount;
}

/// What stays: homes of weights, masters, states and gradients.
void add_homes(ChunkBytes& bytes,
               const ChunkSpec& chunk,
               const AccountingInput& input,
               const Mesh& mesh) {
  const StoreOptions& options = input.options;
  const std::int64_t part = part_numel(chunk, mesh);
  const bool mixed = options.master != options.compute;
  const Tier weights_home = chunk.resident ? Tier::device : chunk.param_home;
  const bool is_master = !mixed && chunk.optim_home == weights_home;
  add(bytes,
      weights_home,
      &ChunkBytes::weights,
      (chunk.resident ? chunk.numel : part) * size_of(options.compute));
  add(bytes,
      chunk.optim_home,
      &ChunkBytes::optimizer,
      is_master ? 0 : part * size_of(options.master));
  if (!options.training) {
    return;
  }
  const std::int64_t states = part * size_of(options.state) * input.num_states;
  if (chunk.states_on_disk) {
    bytes.nvme += states;
  } else {
    add(bytes, chunk.optim_home, &ChunkBytes::optimizer, states);
  }
  const bool in_place = !input.plan.shard_grads && chunk.optim_home == Tier::device;
  bytes.grads += input.plan.shard_grads ? 0 : chunk.numel * size_of(options.grad);
  add(bytes, chunk.optim_home, &ChunkBytes::grads, in_place ? 0 : part * size_of(options.grad));
}

/// One micro-batch of a steady step.
class Play {
 public:
  Play(const AccountingInput& input, const Mesh& mesh)
      : input_(input),
        mesh_(mesh),
        trace_({input.chunks_of_blocks.begin(), input.chunks_of_blocks.end()}),
        blocks_left_(input.plan.chunks.size(), 0) {
    const auto num_blocks = static_cast<int>(input.chunks_of_blocks.size());
    for (int block = 0; block < num_blocks; ++block) {
      order_.push_back(block);
    }
    for (int block = num_blocks; input.options.training && block-- > 0;) {
      order_.push_back(block);
    }
    for (const std::vector<int>& chunks : input.chunks_of_blocks) {
      for (const int chunk : chunks) {
        ++blocks_left_[index(chunk)];
      }
    }
  }

  void run() {
    trace_.begin();  // a first time, so that what comes next is known
    for (const int block : order_) {
      trace_.acquire(block);
    }
    trace_.end();
    trace_.begin();
    for (std::size_t step = 0; step < order_.size(); ++step) {
      visit(order_[step], step >= input_.chunks_of_blocks.size());
    }
  }

  [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }
  [[nodiscard]] std::int64_t gathered() const noexcept { return gathered_; }

 private:
  [[nodiscard]] const ChunkSpec& spec(int chunk) const { return input_.plan.chunks[index(chunk)]; }
  [[nodiscard]] std::int64_t weight_bytes(int chunk) const {
    return spec(chunk).numel * size_of(input_.options.compute);
  }
  [[nodiscard]] std::int64_t cached() const {
    std::int64_t bytes = 0;
    for (const int chunk : here_) {
      bytes += weight_bytes(chunk);
    }
    return bytes;
  }

  void measure() {
    std::int64_t bytes = cached();
    const bool converts = input_.options.compute != input_.options.reduce;
    for (const int chunk : open_) {
      bytes += weight_bytes(chunk);
    }
    for (const int chunk : reducing_) {
      bytes += weight_bytes(chunk);
      bytes += converts ? spec(chunk).numel * size_of(input_.options.reduce) : 0;
    }
    peak_ = std::max(peak_, bytes);
  }

  void gather(int chunk) {
    if (!spec(chunk).resident && here_.insert(chunk).second) {
      gathered_ += part_numel(spec(chunk), mesh_) * size_of(input_.options.compute);
    }
  }

  void make_room(const std::vector<int>& needed) {
    std::int64_t bytes = 0;
    for (const int chunk : needed) {
      bytes += spec(chunk).resident || here_.contains(chunk) ? 0 : weight_bytes(chunk);
    }
    while (input_.plan.cache_bytes && cached() + bytes > *input_.plan.cache_bytes) {
      std::vector<int> idle;
      std::ranges::copy_if(here_, std::back_inserter(idle), [&](int chunk) {
        return std::ranges::find(needed, chunk) == needed.end();
      });
      if (idle.empty()) {
        return;
      }
      here_.erase(trace_.needed_last(idle));
    }
  }

  void gather_ahead() {
    for (const int chunk : trace_.chunks_ahead(input_.plan.measured ? 0 : input_.plan.prefetch)) {
      const bool fits =
          !input_.plan.cache_bytes || cached() + weight_bytes(chunk) <= *input_.plan.cache_bytes;
      if (!here_.contains(chunk) && !fits) {
        return;
      }
      gather(chunk);
    }
  }

  void visit(int block, bool backward) {
    const std::vector<int>& chunks = input_.chunks_of_blocks[index(block)];
    trace_.acquire(block);
    make_room(chunks);
    for (const int chunk : chunks) {
      gather(chunk);
    }
    gather_ahead();
    if (backward && input_.plan.shard_grads) {
      open_.insert(chunks.begin(), chunks.end());
    }
    measure();
    if (backward && input_.plan.shard_grads) {
      report(chunks);
    }
    const std::int64_t soon = input_.plan.measured ? 0 : input_.plan.prefetch;
    for (const int chunk : chunks) {
      if (!input_.plan.cache_bytes && !trace_.used_soon(chunk, soon)) {
        here_.erase(chunk);
      }
    }
  }

  void report(const std::vector<int>& chunks) {
    for (const int chunk : chunks) {
      --blocks_left_[index(chunk)];
    }
    for (; next_ < std::ssize(blocks_left_) && blocks_left_[index(next_)] == 0; ++next_) {
      if (reducing_.size() == kMaxReducing) {
        reducing_.pop_front();
      }
      open_.erase(next_);
      reducing_.push_back(next_);
      measure();
    }
  }

  const AccountingInput& input_;
  const Mesh& mesh_;
  detail::StepTrace trace_;
  std::vector<int> order_;
  std::set<int> here_;  ///< gathered chunks
  std::set<int> open_;  ///< chunks with a whole gradient that backward adds to
  std::deque<int> reducing_;
  std::vector<int> blocks_left_;
  int next_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t gathered_ = 0;  ///< this rank's parts
};

}  // namespace

ChunkBytes account(const AccountingInput& input, const Mesh& mesh) {
  ChunkBytes bytes;
  const std::int64_t reduced_item = size_of(input.options.reduce);
  const std::int64_t reductions = input.plan.shard_grads ? input.micro_batches : 1;
  for (const ChunkSpec& chunk : input.plan.chunks) {
    add_homes(bytes, chunk, input, mesh);
    const std::int64_t reduced =
        mesh.size(chunk.reduce_axes) > 1 ? chunk.numel * reduced_item * reductions : 0;
    (chunk.shard_axes.none() ? bytes.all_reduced : bytes.reduce_scattered) += reduced;
    if (chunk.resident && chunk.shard_axes.any() && mesh.size(chunk.shard_axes) > 1) {
      bytes.gathered += part_numel(chunk, mesh) * size_of(input.options.compute);
    }
  }
  Play play(input, mesh);
  play.run();
  bytes.borrowed = play.peak();
  const bool alone = mesh.size(data_axes()) == 1;
  bytes.gathered += alone ? 0 : play.gathered() * input.micro_batches;
  return bytes;
}

std::vector<std::vector<int>> chunks_of_blocks(const ChunkPlan& plan,
                                               std::span<const ParamSpec> params,
                                               std::span<const std::vector<int>> blocks) {
  std::vector<int> chunk_of(params.size());
  for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
    for (const int param : plan.chunks[index(chunk)].params) {
      chunk_of[index(param)] = chunk;
    }
  }
  const std::vector<int> owner_of = owner_indices(params);
  std::vector<std::vector<int>> result;
  for (const std::vector<int>& block : blocks) {
    std::set<int> used;
    for (const int param : block) {
      used.insert(chunk_of[index(owner_of[index(param)])]);
    }
    result.emplace_back(used.begin(), used.end());
  }
  return result;
}

}  // namespace colossal
