// How are blocks grouped into segments, and how much do they hold when?
#include "train/recompute.hpp"

#include <algorithm>

namespace colossal {
namespace {

bool named(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether running the block again would save memory worth its time.
bool worth_it(const Block& block, const BatchShape& shape) {
  return !block.outputs(shape).empty() && block.cost(shape).forward_flops > 0;
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

std::int64_t activation_peak(std::span<const int> segments, std::span<const BlockCost> costs) {
  std::int64_t kept = 0;   // when backward comes to a block: all before it hold this
  std::int64_t again = 0;  // what the segment under way holds beyond its input
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (segments[i] == kKept) {
      kept += costs[i].activation_bytes;
      again = 0;
    } else if (segments[i] == static_cast<int>(i)) {
      const std::int64_t input = i == 0 ? 0 : costs[i - 1].boundary_bytes;
      kept += input;
      again = costs[i].activation_bytes - input;
    } else {
      again += costs[i].activation_bytes;
    }
    peak = std::max(peak, kept + again);
  }
  return peak;
}

}  // namespace colossal
