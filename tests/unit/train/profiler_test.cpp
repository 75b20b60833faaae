// Does the profiler record the steps it was asked for, and nothing of the numbers change?
#include "train/profiler.hpp"

#include "core/log.hpp"
#include "core/system.hpp"
#include "core/trace.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

using Json = nlohmann::json;

Config profiled(const std::filesystem::path& folder, std::int64_t start, std::int64_t steps) {
  Config config = tiny_gpt();
  config.run.output_dir = folder.string();
  config.logging.profiler = ProfilerConfig{.start_step = start, .steps = steps};
  return config;
}

/// Trains with the profiler as the only hook beside the recording one.
std::vector<StepReport> run(const Config& config, const RunState& state = {}) {
  const ParallelContext context(config);
  Trainer trainer(build(config, context, state), state);
  trainer.add_hook(std::make_unique<ProfilerHook>(config, Comm()));
  return finish(trainer).reports;
}

Json trace_of(const std::filesystem::path& folder, std::int64_t start) {
  const auto file = folder / "profile" / fmt::format("step-{:08}-rank-0000.json", start);
  REQUIRE(std::filesystem::exists(file));
  return Json::parse(read_text(file));
}

/// Number of complete events of a category.
int count(const Json& trace, const std::string& category) {
  int found = 0;
  for (const Json& event : trace.at("traceEvents")) {
    found += event.at("ph") == "X" && event.at("cat") == category ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("the steps asked for are recorded, with every block and micro-batch", "[profiler]") {
  const TempDir folder;
  const Config config = profiled(folder.path(), 2, 3);
  run(config);
  const Json trace = trace_of(folder.path(), 2);
  const int micro_batches = static_cast<int>(config.train.gradient_accumulation);
  const int blocks = static_cast<int>(config.model.num_layers) + 2;  // embedding and head
  CHECK(count(trace, "step") == 3);
  CHECK(count(trace, "data") == 3);
  CHECK(count(trace, "optimizer") == 3);
  CHECK(count(trace, "forward") == 3 * blocks * micro_batches);
  CHECK(count(trace, "backward") == 3 * blocks * micro_batches);
  CHECK(count(trace, "operation") > 100);
  CHECK_FALSE(trace::recording());
}

TEST_CASE("profiling changes no number of the run", "[profiler]") {
  const TempDir folder;
  Config config = profiled(folder.path(), 1, 4);
  config.logging.profiler->memory = true;
  const std::vector<StepReport> with = run(config);
  config.logging.profiler->start_step = 1000;
  const std::vector<StepReport> without = run(config);
  REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i) {
    CHECK(with[i].loss == without[i].loss);
    CHECK(with[i].grad_norm == without[i].grad_norm);
  }
}

TEST_CASE("a run that ends early keeps what was recorded", "[profiler]") {
  const TempDir folder;
  run(profiled(folder.path(), 5, 100));
  CHECK(count(trace_of(folder.path(), 5), "step") == 2);  // the run has six steps
  CHECK_FALSE(trace::recording());
}

TEST_CASE("a run that resumes behind the first step records nothing", "[profiler]") {
  const TempDir folder;
  run(profiled(folder.path(), 3, 1), state_at(4, 64));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "profile"));
  run(profiled(folder.path(), 5, 1), state_at(4, 64));  // the first one of this process
  CHECK(count(trace_of(folder.path(), 5), "step") == 1);
}

TEST_CASE("without a trace there is only the table", "[profiler]") {
  const TempDir folder;
  Config config = profiled(folder.path(), 1, 1);
  config.logging.profiler->trace = false;
  log::configure({.level = log::Level::info, .rank = 0, .folder = folder.path() / "logs"});
  run(config);
  log::flush();
  const std::string log = read_text(folder.path() / "logs" / "train.log");
  log::configure({.level = log::Level::info, .rank = 0, .folder = {}});
  CHECK(log.find("profile   steps 1 to 1: ") != std::string::npos);
  CHECK(log.find("backward") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "profile"));
}

TEST_CASE("a trace that cannot be written ends nothing", "[profiler]") {
  const TempDir folder;
  std::ofstream(folder.path() / "profile") << "a file where a folder should be";
  CHECK(run(profiled(folder.path(), 1, 1)).size() == 6);
}

TEST_CASE("a run that fails while being recorded stops the recording", "[profiler]") {
  const TempDir folder;
  Config config = profiled(folder.path(), 1, 100);
  config.optimizer.lr = std::nan("");
  CHECK_THROWS_AS(run(config), Error);
  CHECK_FALSE(trace::recording());
}

}  // namespace colossal::test
