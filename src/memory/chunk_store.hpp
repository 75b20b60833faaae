// Who owns the bytes of parameters, gradients and optimizer states? The one store, driven by a
// ChunkPlan.
#pragma once

#include "memory/chunk_plan.hpp"
#include "memory/flat_shard.hpp"
#include "memory/held_bytes.hpp"
#include "memory/store_options.hpp"
#include "mesh/context.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Why a block needs its parameters.
enum class BlockUse : std::uint8_t { forward, backward, eval };

/// What moved and what was held since the start of the step, for metrics and tests.
struct StoreCounters {
  std::int64_t gathers = 0;              ///< chunks gathered
  std::int64_t gathered_bytes = 0;       ///< of whole chunks gathered
  std::int64_t crossed_bytes = 0;        ///< between device and host: weights and gradients
  std::int64_t peak_borrowed_bytes = 0;  ///< gathered weights and whole gradients at once
  std::int64_t missing_bytes = 0;        ///< of the device, where "budget-too-small" ended a step
};

/// Chunk states: parameters are at home -> gathering -> gathered (n users) -> at home; resident
/// ones are always gathered. Gradients: empty -> accumulating -> reducing -> ready -> empty, under
/// ChunkPlan::shard_grads reducing -> accumulating between micro-batches. An illegal transition is
/// Error(internal) "chunk-state" naming the chunk. Gathers and reductions are collective: the
/// order of calls must be equal on all ranks.
class ChunkStore {
 public:
  /// What the store needs to know of one block of the model.
  struct Block {
    std::string name;
    std::vector<Parameter*> parameters;
  };

  /// Allocates and initialises all chunks. `blocks` in forward order; parameters and `context` must
  /// outlive the store. `optimizer_states`: names of the states kept beside each master. Errors:
  /// memory "out-of-memory", "budget-too-small" (a block needs more than ChunkPlan::cache_bytes).
  ChunkStore(std::span<const Block> blocks,
             const ChunkPlanner& planner,
             std::span<const std::string_view> optimizer_states,
             const StoreOptions& options,
             const ParallelContext& context);
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  /// Parameters of the block are valid from acquire to the matching release; counted. Gathers what
  /// is not here, and starts to gather for the blocks that came next in the step before.
  /// Errors: internal "block-index", "chunk-state" (released more often than acquired).
  void acquire(int block, BlockUse use);
  void release(int block);

  /// The start of a step: gradients are zero, still to be written, or without memory until backward
  /// (StoreOptions::lend_grads). Not to be read before finish_gradients().
  void begin_gradients();
  /// Gives back the memory of lent gradients before begin_gradients() does: nobody reads those of
  /// the last step any more.
  void drop_gradients();
  /// The block's gradients of this micro-batch are in. A chunk whose blocks have all reported -
  /// under shard_grads for this micro-batch, else for the last one - is summed over its axes in the
  /// background, chunks in plan order on every rank.
  void gradients_ready(int block, bool last);
  /// Waits for all reductions; gradients are then summed over all ranks. Errors: internal
  /// "chunk-state" if a block never reported, "param-no-gradient" naming a parameter that no
  /// backward reached.
  void finish_gradients();
  /// After an error between begin_gradients() and the end of finish_gradients(), in a process that
  /// shares no gradients: nothing is acquired any more, and the next step can begin. Errors:
  /// internal "chunk-state" under ChunkPlan::shard_grads.
  void abandon_gradients();
  /// After an update, which wrote masters and 16-bit copies: new values -> compute parameters.
  /// Communicates: all-gather of resident sharded chunks; under ChunkPlan::measured, after a
  /// measured step, what all ranks decide. Errors: memory "budget-too-small"; internal
  /// "plan-disagreement".
  void publish();
  /// After masters were changed otherwise (loaded): the 16-bit copies too.
  void publish_masters();

  /// Master values, gradients and states of all chunks, in plan order.
  [[nodiscard]] std::span<FlatShard> shards() noexcept;
  /// Shows all shards to `call` in plan order, those in memory in runs, those whose states are on
  /// disk one by one, with their states in memory and what was changed stored as `access` says.
  /// Errors: those of the disk.
  void visit(StateAccess access, const std::function<void(std::span<FlatShard>)>& call);
  /// All parameters (tied ones once, their owner), indexed by Segment::param.
  [[nodiscard]] std::span<Parameter* const> parameters() const noexcept;
  /// Of the current or the last step.
  [[nodiscard]] StoreCounters counters() const noexcept;
  /// What is on the device now, in any state: also where an error has left a step.
  [[nodiscard]] HeldBytes held() const;
  /// The plan in use; its parameters are numbered as parameters() is.
  [[nodiscard]] const ChunkPlan& plan() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal
