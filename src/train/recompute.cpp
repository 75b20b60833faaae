// How are blocks grouped into segments, and how much do they hold when?
#include "train/recompute.hpp"

#include "memory/host_memory.hpp"

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

bool named(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether running the block again would save memory worth its time.
bool worth_it(const Block& block, const BatchShape& shape) {
  return !block.outputs(shape).empty() && block.cost(shape).forward_flops > 0;
}

/// What enters a block: nothing enters the first one.
std::int64_t input_bytes(std::span<const BlockCost> costs, int block) {
  return block == 0 ? 0 : costs[static_cast<std::size_t>(block) - 1].boundary_bytes;
}

/// While a segment runs again, the gradient of its result waits, and the next input.
void add_waiting(std::span<BlockActivations> segment, std::int64_t bytes) {
  for (BlockActivations& block : segment) {
    block.again += bytes;
  }
}

}  // namespace

Recompute layer_recompute(const ActivationCheckpointConfig& config) {
  if (config.mode != RecomputeMode::selective) {
    return {};
  }
  return {.gelu = named(config.recompute, "gelu"),
          .norm = named(config.recompute, "norm"),
          .attention = named(config.recompute, "attention"),
          .mlp = named(config.recompute, "mlp")};
}

std::vector<int> recompute_segments(const ActivationCheckpointConfig& config,
                                    std::span<const std::unique_ptr<Block>> blocks,
                                    const BatchShape& shape) {
  std::vector<int> segments(blocks.size(), kKept);
  if (config.mode != RecomputeMode::full) {
    return segments;
  }
  std::int64_t left = config.blocks.value_or(static_cast<std::int64_t>(blocks.size()));
  std::int64_t length = 0;  // of the segment under way
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (left == 0 || !worth_it(*blocks[i], shape)) {
      length = 0;
      continue;
    }
    --left;
    segments[i] = length == 0 ? static_cast<int>(i) : segments[i - 1];
    length = (length + 1) % config.every;
  }
  return segments;
}

std::optional<int> segment_ahead(std::span<const int> segments, int block) {
  const int own = segments[static_cast<std::size_t>(block)];
  for (int first = (own == kKept ? block : own) - 1; first >= 0; --first) {
    if (segments[static_cast<std::size_t>(first)] == first) {
      return first;
    }
  }
  return std::nullopt;
}

std::int64_t host_input_bytes(std::span<const int> segments, std::span<const BlockCost> costs) {
  std::int64_t bytes = 0;
  for (int block = 0; block < std::ssize(segments); ++block) {
    const std::int64_t pages = (input_bytes(costs, block) + kHostPage - 1) / kHostPage;
    bytes += segments[static_cast<std::size_t>(block)] == block ? pages * kHostPage : 0;
  }
  return bytes;
}

std::vector<BlockActivations> block_activations(std::span<const int> segments,
                                                std::span<const BlockCost> costs,
                                                InputOffload offload) {
  const bool away = offload == InputOffload::cpu;
  std::vector<BlockActivations> moments;
  std::int64_t kept = 0;           // by the blocks before, and before the segment under way
  std::int64_t segment_input = 0;  // of that segment, once its first block has run
  std::int64_t again = 0;          // what it holds up to this block when it has run again
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const BlockCost& cost = costs[i];
    const std::int64_t input = input_bytes(costs, static_cast<int>(i));
    const bool inside = segments[i] != kKept && segments[i] != static_cast<int>(i);
    if (!inside) {
      kept += std::exchange(segment_input, 0);
      again = 0;
    }
    const bool ends =
        segments[i] != kKept && (i + 1 == costs.size() || segments[i + 1] != segments[i]);
    const std::int64_t before = std::exchange(again, again + cost.activation_bytes);
    const std::optional<int> next =
        away ? segment_ahead(segments, static_cast<int>(i)) : std::nullopt;
    const std::int64_t ahead = input_bytes(costs, next.value_or(0));
    moments.push_back({.forward = kept + segment_input + cost.activation_bytes +
                                  cost.boundary_bytes + cost.forward_bytes,
                       .backward = kept + again + ahead + cost.boundary_bytes + cost.backward_bytes,
                       .after = kept + before + ahead + 2 * input,  // the input and its gradient
                       .again = kept + again + cost.boundary_bytes + cost.forward_bytes,
                       .runs_again_from = ends ? segments[i] : -1});
    if (ends) {
      add_waiting(std::span(moments).subspan(static_cast<std::size_t>(segments[i])),
                  cost.boundary_bytes + ahead);
    }
    if (segments[i] == kKept) {
      kept += cost.activation_bytes;
    } else if (!inside && !away) {
      segment_input = input;
    }
  }
  return moments;
}

}  // namespace colossal
