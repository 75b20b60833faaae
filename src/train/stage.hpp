// How does a stage run its blocks? Acquire, run, release, keep only the graph edges; backward block
// by block.
#pragma once

#include "config/config.hpp"
#include "memory/chunk_store.hpp"
#include "mesh/context.hpp"
#include "nn/block.hpp"
#include "parallel/pipeline/schedule.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

namespace colossal {

/// Runs the blocks of one stage over a ChunkStore. The autograd graph is cut at every block
/// boundary: a block's inputs are detached leaves, of its outputs only the gradient edges are kept,
/// and its graph runs on its own in backward. Of blocks that run again in backward only the input
/// of each segment is kept (recompute_segments()), on the device or in host memory. Never
/// re-entrant, no hooks.
class BlockStage : public StageRunner {
 public:
  /// Block i of `blocks` is block i of `store`; the mesh of `context` says which part of each
  /// boundary is this rank's. All must outlive the stage. Errors: internal "empty-stage" without
  /// blocks.
  BlockStage(std::span<const std::unique_ptr<Block>> blocks,
             ChunkStore& store,
             const ParallelContext& context,
             const ActivationCheckpointConfig& recompute = {});
  ~BlockStage() override;

  /// Start of a step: gradients of loss_sum start as the factor of each batch's LossRule, or as
  /// `loss_factor` (loss scale / global count of labelled tokens) where it has none.
  void begin_step(double loss_factor);
  Activation forward(int index, const Batch& batch) override;
  void backward(int index, bool last) override;
  /// Forward of all blocks without graphs (evaluation): the last block's activation.
  Activation evaluate(const Batch& batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal
