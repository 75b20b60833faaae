// What can a run be told about its checkpoints? Section `checkpoint`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace colossal {
/// Words of this section.
enum class BestMode : std::uint8_t { min, max };
enum class CheckpointContent : std::uint8_t { full, weights };
enum class ExportFormat : std::uint8_t { none, safetensors };

/// YAML section `checkpoint.keep_best`.
struct KeepBestConfig {
  std::string metric;  ///< "eval/loss": a field of the metrics, after the kind of its record
  BestMode mode = BestMode::min;
};

/// YAML section `checkpoint`.
struct CheckpointConfig {
  std::optional<std::int64_t> every_steps = {};
  std::optional<double> every_time_seconds = {};  ///< since the last one
  bool at_end = true;
  std::int64_t keep_last = 2;
  std::optional<std::int64_t> keep_every = {};
  std::optional<KeepBestConfig> keep_best = {};
  bool async = false;
  std::string resume = "auto";  ///< auto, never, require, or a checkpoint directory
  CheckpointContent content = CheckpointContent::full;
  bool checksum = true;
  ExportFormat export_at_end = ExportFormat::none;

  /// Whether anything is saved before the end.
  [[nodiscard]] bool has_cadence() const noexcept { return every_steps || every_time_seconds; }
};

}  // namespace colossal
