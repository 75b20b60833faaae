// With which configuration was a checkpoint written?
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"
#include "config/load.hpp"

#include <string>

namespace colossal {

/// Loads the configuration stored in a checkpoint, with further overrides.
[[nodiscard]] Loaded load_stored(const RunState& state, const LoadOptions& options);

/// The configuration stored in a checkpoint. Errors: checkpoint "checkpoint-config" if this program
/// cannot read it any more.
[[nodiscard]] Config stored_config(const RunState& state);

/// Refuses a tokenizer other than the one trained with; both are fingerprints, empty for one
/// without files. What was trained without a tokenizer's files takes any. Errors: checkpoint
/// "tokenizer-mismatch".
void check_tokenizer(const std::string& trained, const std::string& now);

}  // namespace colossal
