// Who owns the bytes of parameters, gradients and optimizer states? The one store, driven by a
// ChunkPlan.
#pragma once

#include "memory/chunk_plan.hpp"
#include "mesh/context.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Element range [begin, end) of a parameter's local tensor that a shard holds at [offset, offset +
/// end - begin).
struct Segment {
  int param = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t offset = 0;
};

/// What optimizers and checkpoints see of one chunk on this rank: flat, aligned, equal lengths.
struct FlatShard {
  at::Tensor master;   ///< fp32, or fp64 under fp64
  at::Tensor grad;     ///< summed over all ranks; dtype of master, or bf16 or fp16
  at::Tensor working;  ///< bf16 or fp16 copy of the master that the update writes in the same pass;
                       ///< undefined where the parameter is its own master
  std::map<std::string, at::Tensor, std::less<>>
      state;                      ///< zero at the start; dtype of master, or bf16
  std::vector<Segment> segments;  ///< in order of offset; gaps are zero padding
  AxisSet shard_axes;  ///< each rank of these holds another part; none: all hold everything
};

/// Chunk states: parameters are gathered or not; gradients: empty -> accumulating -> reducing ->
/// ready -> empty. An illegal transition is Error(internal) "chunk-state" naming the chunk.
class ChunkStore {
 public:
  /// What the store needs to know of one block of the model.
  struct Block {
    std::string name;
    std::vector<Parameter*> parameters;
  };

  /// Allocates and initialises all chunks. `blocks` in forward order; parameters must outlive the
  /// store. `optimizer_states`: names of the states kept beside each master.
  ChunkStore(std::span<const Block> blocks,
             const ChunkPlanner& planner,
             std::span<const std::string_view> optimizer_states,
             const ParallelContext& context);
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  /// Parameters of the block are valid from acquire to the matching release; counted.
  /// Errors: internal "block-index", "chunk-state" (released more often than acquired).
  void acquire(int block);
  void release(int block);

  /// Zeroes all gradients: the start of a step.
  void begin_gradients();
  /// The block's gradients of this micro-batch are in. After the last micro-batch (`last`), a chunk
  /// whose blocks have all reported is summed over its axes in the background, chunks in plan order
  /// on every rank.
  void gradients_ready(int block, bool last);
  /// Waits for all reductions; gradients are then summed over all ranks. Errors: internal if a
  /// block never reported.
  void finish_gradients();
  /// New master values -> compute parameters (a no-op where the parameter is its own master).
  void publish();

  /// Master values, gradients and states of all chunks, in plan order.
  [[nodiscard]] std::span<FlatShard> shards() noexcept;
  /// All parameters (tied ones once, their owner), indexed by Segment::param.
  [[nodiscard]] std::span<Parameter* const> parameters() const noexcept;
  /// The plan in use; its parameters are numbered as parameters() is.
  [[nodiscard]] const ChunkPlan& plan() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal
