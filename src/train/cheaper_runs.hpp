// Which changes of a configuration need less memory, and by how much?
#pragma once

#include "config/config.hpp"
#include "train/capacity.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace colossal {

/// A change of the configuration that needs less memory.
struct CheaperRun {
  std::string change;      ///< "train.micro_batch_size 8 -> 4"
  std::int64_t saved = 0;  ///< bytes of this rank, by the plan
};

/// Up to three changes that make this share of the rank's plan smaller: first those that alone save
/// `missing` bytes, the least costly in time first; then those that save most. Of a change by
/// degrees the mildest that suffices.
[[nodiscard]] std::vector<CheaperRun> cheaper_runs(const Config& config,
                                                   int rank,
                                                   std::int64_t missing,
                                                   MemoryShare share = MemoryShare::device);

}  // namespace colossal
