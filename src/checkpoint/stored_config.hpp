// With which configuration was a checkpoint written?
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"
#include "config/load.hpp"

namespace colossal {

/// Loads the configuration stored in a checkpoint, with further overrides.
[[nodiscard]] Loaded load_stored(const RunState& state, const LoadOptions& options);

/// The configuration stored in a checkpoint. Errors: checkpoint "checkpoint-config" if this program
/// cannot read it any more.
[[nodiscard]] Config stored_config(const RunState& state);

}  // namespace colossal
