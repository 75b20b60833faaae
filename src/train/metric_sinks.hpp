// Where do the numbers of a run go beside the console?
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace colossal {

class RunDir;

/// One record of schemas/metrics.md: a flat object whose numbers have full precision.
using MetricRecord = nlohmann::ordered_json;

/// A file that takes the records of a run. Failing to write is logged, never thrown.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  /// Before the first record of a process that goes on after `step` (0: from the start): what an
  /// earlier process recorded for later steps is work that was lost.
  virtual void begin(std::int64_t step) = 0;
  /// Takes one record, on disk when this returns.
  virtual void write(const MetricRecord& record) = 0;
};

/// metrics.jsonl always; TensorBoard event files and metrics.csv as `logging` says. `run_dir` must
/// outlive them.
[[nodiscard]] std::vector<std::unique_ptr<MetricSink>> make_metric_sinks(
    const LoggingConfig& logging, RunDir& run_dir);

}  // namespace colossal
