// Which values follow from others (phase P4)?
#pragma once

#include "config/config.hpp"
#include "config/origins.hpp"
#include "config/tree.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colossal::detail {

/// What derivation needs besides the configuration.
struct DeriveInput {
  std::string stem;  ///< of the configuration file: the default name of the run
  std::optional<std::int64_t> world_size;
  std::string world_origin;
  /// Length of the run, where the data had to say it.
  std::optional<std::int64_t> steps = std::nullopt;
};

/// Fills every value that the user left open, recording derived(rule) origins. Reports required
/// (batch sizes, vocabulary), batch-mismatch. Values that need an unknown world size stay 0.
void derive(Config& config, Origins& origins, const DeriveInput& input, Report& report);

/// Batch arithmetic of config-and-cli 5.2 alone.
void derive_batch(Config& config, Origins& origins, const DeriveInput& input, Report& report);

/// `config` with every value that has a rule forgotten and found again, for to_minimal_yaml().
[[nodiscard]] Config rederive(const Config& config);

/// Whether `path` is filled by model.preset.
[[nodiscard]] bool is_preset_key(std::string_view path);

/// Number of token ids of a tokenizer; 0 if only its files say (phase P7).
[[nodiscard]] std::int64_t tokenizer_size(const TokenizerConfig& tokenizer);

}  // namespace colossal::detail
