// What does the end of a run tell? The last metrics, where the time went, and what to do next.
#pragma once

#include "train/memory_report.hpp"
#include "train/utilization.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace colossal {

/// Everything the end of a run reports.
struct RunSummary {
  std::string reason;  ///< "finished", "stopped by SIGTERM"
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  std::optional<double> loss;           ///< of the last step; unset if none ran
  std::optional<double> eval_loss;      ///< of the last evaluation
  std::optional<double> eval_accuracy;  ///< of the last evaluation of a classifier
  double seconds = 0;                   ///< process start to now
  double startup_seconds = 0;           ///< process start to the first step
  double hook_share = 0;                ///< of the loop's time
  std::int64_t persistent_bytes = 0;    ///< of tensors when the first step began
  std::optional<MemorySummary> memory;  ///< unset if nothing ran
  StepRate rate;                        ///< of the steps of this process
  std::filesystem::path output_dir;
  std::filesystem::path checkpoint;  ///< newest; empty without one
  bool generates = false;            ///< the model continues text: `generate` works on it
  /// Of GPUs whose peak is known.
  std::optional<Utilization> utilization = {};
};

/// Console lines of the end of a run, without a final newline.
[[nodiscard]] std::string to_text(const RunSummary& summary);
/// One line of JSON: the last line of train's stdout.
[[nodiscard]] std::string to_json_line(const RunSummary& summary);

}  // namespace colossal
