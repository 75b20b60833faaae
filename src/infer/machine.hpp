// Which part of the machine may generation use?
#pragma once

#include "config/config.hpp"

namespace colossal {

/// Threads of run.threads (unset: torch takes all cores) and memory of run.device_memory. Before
/// the first tensor.
void use_machine(const RunConfig& run);

}  // namespace colossal
