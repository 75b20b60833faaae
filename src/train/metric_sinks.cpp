// Which files take the records of a run?
#include "train/metric_sinks.hpp"

#include "core/log.hpp"
#include "core/system.hpp"
#include "train/append_file.hpp"
#include "train/csv_sink.hpp"
#include "train/run_dir.hpp"
#include "train/tensorboard_sink.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// Cuts a partial last line that a killed run left: it never was a record.
void drop_partial_line(const fs::path& file) {
  std::error_code ignored;
  const auto size = fs::file_size(file, ignored);
  if (ignored || size == 0) {
    return;
  }
  const std::string text = read_text(file);
  const std::size_t end = text.rfind('\n');
  const std::size_t whole = end == std::string::npos ? 0 : end + 1;
  if (whole == text.size()) {
    return;
  }
  fs::resize_file(file, whole, ignored);
  log::info("[run] {}: dropped a partial last line of {} bytes", file.string(), size - whole);
}

/// metrics.jsonl keeps everything: its readers take the last record of each kind and step.
class JsonLines : public MetricSink {
 public:
  explicit JsonLines(const RunDir& run_dir) : file_(run_dir.path() / "metrics.jsonl") {}
  void begin(std::int64_t) override { drop_partial_line(file_.path()); }
  void write(const MetricRecord& record) override { file_.append(record.dump() + "\n"); }

 private:
  AppendFile file_;
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
