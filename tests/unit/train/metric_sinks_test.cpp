// Which files take the records of a run, and is metrics.jsonl whole after a kill?
#include "train/metric_sinks.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/run_dir.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

MetricRecord record(int step) {
  return {{"t", 1.5}, {"attempt", 1}, {"kind", "train"}, {"step", step}, {"loss", 2.5}};
}

LoggingConfig only_json() {
  LoggingConfig logging;
  logging.tensorboard = false;
  return logging;
}

/// Gives records of steps 1 and 2 to all sinks of `logging`, after step `from`.
void write_two(RunDir& run_dir, const LoggingConfig& logging, std::int64_t from = 0) {
  for (const auto& sink : make_metric_sinks(logging, run_dir)) {
    sink->begin(from);
    sink->write(record(1));
    sink->write(record(2));
  }
}

/// The same in a run of its own.
void write_two(const fs::path& folder, const LoggingConfig& logging, std::int64_t from = 0) {
  write_two(*RunDir::open(folder, 0), logging, from);
}

}  // namespace

TEST_CASE("metrics.jsonl is always written, the rest as logging says", "[metric_sinks]") {
  for (const bool tensorboard : {false, true}) {
    for (const bool csv : {false, true}) {
      const TempDir folder;
      LoggingConfig logging;
      logging.tensorboard = tensorboard;
      logging.csv = csv;
      write_two(folder.path(), logging);
      CHECK(read_text(folder.path() / "metrics.jsonl") ==
            record(1).dump() + "\n" + record(2).dump() + "\n");
      CHECK(fs::exists(folder.path() / "tensorboard") == tensorboard);
      CHECK(fs::exists(folder.path() / "metrics.csv") == csv);
    }
  }
}

TEST_CASE("metrics keep whole lines and lose a partial one", "[metric_sinks]") {
  const TempDir folder;
  const fs::path metrics = folder.path() / "metrics.jsonl";
  std::ofstream(metrics) << "{\"step\":7}\n{\"st";
  write_two(folder.path(), only_json(), 7);
  CHECK(read_text(metrics) == "{\"step\":7}\n" + record(1).dump() + "\n" + record(2).dump() + "\n");
}

TEST_CASE("metrics that cannot be written end nothing", "[metric_sinks]") {
  const TempDir folder;
  const auto run_dir = RunDir::open(folder.path(), 0);
  fs::create_directories(folder.path() / "metrics.jsonl");  // refused if it were there before
  CHECK_NOTHROW(write_two(*run_dir, only_json()));
  CHECK(fs::is_empty(folder.path() / "metrics.jsonl"));
}

}  // namespace colossal::test
