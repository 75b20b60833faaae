// Which blocks run again in backward, and what does that save?
#pragma once

#include "config/config.hpp"
#include "memory/accounting.hpp"
#include "nn/block.hpp"
#include "nn/layers.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace colossal {

/// Value of recompute_segments() for a block that keeps its activations.
inline constexpr int kKept = -1;

/// train.activation_checkpoint for the layers of a stage (mode: selective).
[[nodiscard]] Recompute layer_recompute(const ActivationCheckpointConfig& config);

/// For each block the first block of the segment with which it runs again in backward (mode: full),
/// or kKept. Only the input of a segment is kept. A block that returns the loss is kept, since its
/// backward follows at once, and so is one without products (embedding), which keeps nothing but
/// indices; neither counts for `every` and `blocks`.
[[nodiscard]] std::vector<int> recompute_segments(const ActivationCheckpointConfig& config,
                                                  std::span<const std::unique_ptr<Block>> blocks,
                                                  const BatchShape& shape);

/// The first block of the segment whose input is fetched while `block` runs backward: the last one
/// below it and below its own segment; none if there is no such segment.
[[nodiscard]] std::optional<int> segment_ahead(std::span<const int> segments, int block);

/// Bytes of host memory that the inputs of a micro-batch's segments take, whole pages each.
[[nodiscard]] std::int64_t host_input_bytes(std::span<const int> segments,
                                            std::span<const BlockCost> costs);

/// Bytes of activations that one micro-batch holds while each block runs: what is kept, in backward
/// the segment that has run again, gradients at the boundary, and what the block works with. With
/// offload the inputs of segments are not kept, but for the one that is fetched ahead.
[[nodiscard]] std::vector<BlockActivations> block_activations(
    std::span<const int> segments,
    std::span<const BlockCost> costs,
    InputOffload offload = InputOffload::none);

}  // namespace colossal
