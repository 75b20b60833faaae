// What of the state is written while training goes on? A copy of what this rank owns.
#pragma once

#include "checkpoint/checkpoint.hpp"

#include <span>
#include <vector>

namespace colossal {

/// Copies of all regions of `records` that this rank owns, in host memory (MemoryKind::host): one
/// record per region, in the same order, so that what is written is the same. Records of others
/// keep their name and type. Errors: memory "host-memory".
[[nodiscard]] std::vector<TensorRecord> snapshot(std::span<const TensorRecord> records);

}  // namespace colossal
