// Which files take the records of a run?
#include "train/metric_sinks.hpp"

#include "train/csv_sink.hpp"
#include "train/run_dir.hpp"
#include "train/tensorboard_sink.hpp"

#include <nlohmann/json.hpp>

namespace colossal {
namespace {

/// metrics.jsonl keeps everything: its readers take the last record of each kind and step.
class JsonLines : public MetricSink {
 public:
  explicit JsonLines(RunDir& run_dir) : run_dir_(run_dir) {}
  void begin(std::int64_t) override {}
  void write(const MetricRecord& record) override { run_dir_.append_metrics(record.dump()); }

 private:
  RunDir& run_dir_;
};

}  // namespace

std::vector<std::unique_ptr<MetricSink>> make_metric_sinks(const LoggingConfig& logging,
                                                           RunDir& run_dir) {
  std::vector<std::unique_ptr<MetricSink>> sinks;
  sinks.push_back(std::make_unique<JsonLines>(run_dir));
  if (logging.tensorboard) {
    sinks.push_back(std::make_unique<TensorboardSink>(run_dir.path() / "tensorboard"));
  }
  if (logging.csv) {
    sinks.push_back(std::make_unique<CsvSink>(run_dir));
  }
  return sinks;
}

}  // namespace colossal
