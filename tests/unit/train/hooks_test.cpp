// Do the hooks show, save and evaluate when they should, and what they should?
#include "train/hooks.hpp"

#include "core/log.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace colossal::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) {
    all.push_back(line);
  }
  return all;
}

/// A run with all hooks in a folder of its own; what it wrote is read back.
class HookedRun {
 public:
  explicit HookedRun(Config config) : config_(std::move(config)), context_(config_) {
    config_.run.output_dir = folder_.path().string();
  }

  /// Runs from `state` with the standard hooks; console lines go to train.log.
  void run(const RunState& state = {}) {
    log::configure({.level = log::Level::info, .rank = 0, .folder = folder_.path() / "logs"});
    const std::unique_ptr<RunDir> run_dir = RunDir::open(folder_.path(), 0);
    if (saves_fail) {  // not before: a run does not begin in such a folder
      std::ofstream(folder_.path() / "checkpoints") << "a file where a folder should be";
    }
    Trainer trainer(build(config_, context_, state), state);
    const std::unique_ptr<World> world = World::connect({}, {}, {});
    add_standard_hooks(trainer, run_dir.get(), *world);
    trainer.add_hook(std::make_unique<RecordingHook>(reports));
    try {
      trainer.run();
    } catch (...) {
      log::flush();
      throw;
    }
    hook_seconds = trainer.hook_seconds();
    loop_seconds = trainer.loop_seconds();
    side_seconds = trainer.side_seconds();
    log::flush();
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] std::vector<Json> metrics(const std::string& kind) const {
    std::vector<Json> found;
    for (const std::string& line : lines(read_text(folder() / "metrics.jsonl"))) {
      const Json json = Json::parse(line);
      if (json["kind"] == kind) {
        found.push_back(json);
      }
    }
    return found;
  }
  [[nodiscard]] std::vector<std::string> console(const std::string& kind) const {
    std::vector<std::string> found;
    for (const std::string& line : lines(read_text(folder() / "logs" / "train.log"))) {
      if (line.starts_with(kind + "  ")) {
        found.push_back(line);
      }
    }
    return found;
  }
  [[nodiscard]] std::vector<std::int64_t> saved() const {
    std::vector<std::int64_t> steps;
    if (std::filesystem::exists(folder() / "checkpoints")) {
      for (const CheckpointInfo& info : list_checkpoints(folder() / "checkpoints")) {
        steps.push_back(info.step);
      }
    }
    return steps;
  }

  /// What the checkpoint of a step says of its weights.
  [[nodiscard]] std::map<std::string, double> measured(std::int64_t step) const {
    return read_state(folder() / "checkpoints" / fmt::format("step-{:08}", step)).metrics;
  }

  std::vector<StepReport> reports;
  bool saves_fail = false;
  double hook_seconds = 0;
  double loop_seconds = 0;
  double side_seconds = 0;

 private:
  TempDir folder_;
  Config config_;
  ParallelContext context_;
};

std::vector<std::int64_t> steps_of(const std::vector<Json>& records) {
  std::vector<std::int64_t> steps;
  for (const Json& record : records) {
    steps.push_back(record["step"]);
  }
  return steps;
}

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("step 1, every n-th and the last step are shown", "[hooks]") {
  LogCadence cadence(4);
  Steps shown;
  for (std::int64_t step = 1; step <= 10; ++step) {
    if (cadence.due(step, 10)) {
      shown.push_back(step);
    }
  }
  CHECK(shown == Steps{1, 4, 8, 10});
}

TEST_CASE("metrics.jsonl holds the exact numbers of each step", "[hooks]") {
  Config config = tiny_gpt();
  config.checkpoint.at_end = false;
  HookedRun run(config);
  run.run();
  const std::vector<Json> records = run.metrics("train");
  REQUIRE(steps_of(records) == Steps{1, 2, 3, 4, 5, 6});
  for (std::size_t i = 0; i < records.size(); ++i) {
    const StepReport& report = run.reports[i];
    CHECK(records[i]["loss"].get<double>() == Approx(report.loss).epsilon(1e-15));
    CHECK(records[i]["lr"].get<double>() == report.lr);
    CHECK(records[i]["grad_norm"].get<double>() == report.grad_norm);
    CHECK(records[i]["epoch"].get<double>() == report.epoch);
    CHECK(records[i]["clipped"].get<bool>() == report.clipped);
    CHECK(records[i]["data_hash"] == fmt::format("{:016x}", report.data_hash));
    CHECK(records[i]["samples"] == 16 * (i + 1));
    CHECK(records[i]["tokens"] == 16 * 12 * (i + 1));
    CHECK(records[i]["skipped"] == 0);
    CHECK(records[i]["attempt"] == 1);
    CHECK(records[i]["mem_peak"].get<std::int64_t>() > 1'000'000);
    CHECK(records[i]["step_time"].get<double>() > 0);
    CHECK(records[i]["tokens_per_s"].get<double>() > 0);
    CHECK(records[i]["t"].get<double>() > 1.7e9);
  }
  CHECK(run.metrics("resume").empty());
  CHECK(run.saved().empty());
}

TEST_CASE("a line's loss is the token mean of its window", "[hooks]") {
  Config config = tiny_gpt();
  config.logging.every_steps = 4;
  HookedRun run(config);
  run.run();
  const std::vector<Json> records = run.metrics("train");
  REQUIRE(steps_of(records) == Steps{1, 4, 6});
  const auto mean = [&](std::size_t from, std::size_t to) {
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) {
      sum += run.reports[i].loss;
    }
    return sum / static_cast<double>(to - from);
  };
  CHECK(records[1]["loss"].get<double>() == Approx(mean(1, 4)).epsilon(1e-14));
  CHECK(records[2]["loss"].get<double>() == Approx(mean(4, 6)).epsilon(1e-14));
}

TEST_CASE("padding is no token of the throughput", "[hooks]") {
  Config config = tiny_gpt();
  config.data.last_batch = LastBatch::pad;
  config.data.num_samples = config.train.global_batch_size + 1;
  HookedRun run(config);
  run.run();
  const std::vector<Json> records = run.metrics("train");
  REQUIRE(records.size() == run.reports.size());
  CHECK(run.reports[1].tokens < run.reports[0].tokens);  // one sample in a batch of padding
  for (std::size_t i = 0; i < records.size(); ++i) {
    const double counted =
        records[i]["tokens_per_s"].get<double>() * records[i]["step_time"].get<double>();
    CHECK(counted == Approx(static_cast<double>(run.reports[i].tokens)));
  }
}

TEST_CASE("an mlp counts rows", "[hooks]") {
  const Config config = tiny_mlp();
  HookedRun run(config);
  run.run();
  for (const std::string& line : run.console("step")) {
    INFO(line);
    CHECK(line.find("  row/s ") != std::string::npos);
    CHECK(line.find("tok/s") == std::string::npos);
  }
}

TEST_CASE("console lines have the fixed order of config-and-cli 10 and align", "[hooks]") {
  Config config = tiny_gpt();
  config.eval.every_steps = 3;
  config.checkpoint.every_steps = 3;
  HookedRun run(config);
  run.run();
  const std::regex step_line(
      R"(step  \d/6 {2,}loss \d+\.\d{4}  lr \d\.\d\de-\d\d  gnorm \d+\.\d\d\*?  tok/s [\d.]+k?  )"
      R"([\d.e-]+ s/step \(data \d+%\)  mem \d+\.\d GiB  eta \d+s)");
  const std::regex eval_line(
      R"(eval  step \d {2,}loss \d+\.\d{4}  ppl \d+\.\d\d  1 batch  \d+\.\d s)");
  const std::regex ckpt_line(
      R"(ckpt  step \d {2,}saved [\d.]+ [kM]B in \d+\.\d s -> checkpoints/step-0000000\d)");
  REQUIRE(run.console("step").size() == 6);
  REQUIRE(run.console("eval").size() == 2);
  REQUIRE(run.console("ckpt").size() == 2);
  for (const std::string& line : run.console("step")) {
    INFO(line);
    CHECK(std::regex_match(line, step_line));
  }
  for (const std::string& line : run.console("eval")) {
    INFO(line);
    CHECK(std::regex_match(line, eval_line));
  }
  for (const std::string& line : run.console("ckpt")) {
    INFO(line);
    CHECK(std::regex_match(line, ckpt_line));
  }
  CHECK(run.console("step")[0].find("loss") == run.console("eval")[0].find("loss"));
  CHECK(run.console("step")[0].find("loss") == run.console("ckpt")[0].find("saved"));
  const Json eval = run.metrics("eval").back();
  CHECK(eval["step"] == 6);
  CHECK(eval["samples"] == 8);
  CHECK(eval["ppl"].get<double>() == Approx(std::exp(eval["loss"].get<double>())));
}

TEST_CASE("evaluation happens at the start, on its cadence and at the end, once each", "[hooks]") {
  Config config = tiny_gpt();
  config.eval.at_start = true;
  config.eval.at_end = true;
  config.eval.every_steps = 4;
  HookedRun run(config);
  run.run();
  CHECK(steps_of(run.metrics("eval")) == Steps{0, 4, 6});
  config.eval.every_steps = 3;
  HookedRun even(config);
  even.run();
  CHECK(steps_of(even.metrics("eval")) == Steps{0, 3, 6});
  CHECK(even.side_seconds > 0);
}

TEST_CASE("the checkpoint of the last step was written before its evaluation", "[hooks]") {
  Config config = tiny_gpt();
  config.eval.at_end = true;
  config.checkpoint.every_steps = 3;
  HookedRun run(config);
  run.run();
  CHECK(steps_of(run.metrics("eval")) == Steps{6});
  CHECK(run.console("ckpt").size() == 2);
  CHECK(run.measured(6).at("eval/loss") == run.metrics("eval").back()["loss"].get<double>());
}

TEST_CASE("checkpoints of a resumed run had the metrics of the one it began with", "[hooks]") {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = 5;
  config.eval.every_steps = 6;
  HookedRun run(config);
  RunState state = state_at(4, 64);
  state.metrics = {{"train/loss", 1e-3}, {"eval/loss", 1e-3}, {"eval/ppl", 1.001}};
  run.run(state);
  REQUIRE(run.saved() == Steps{5, 6});
  const std::map<std::string, double> five = run.measured(5);
  CHECK(five.size() == 1);
  CHECK(five.at("train/loss") == run.reports.front().loss);
  CHECK(run.measured(6).at("eval/loss") > 1);
}

TEST_CASE("checkpoints are saved on the cadence and at the end, old ones go", "[hooks]") {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = 2;
  config.checkpoint.keep_last = 2;
  HookedRun run(config);
  run.run();
  CHECK(run.saved() == Steps{4, 6});
  CHECK(run.console("ckpt").size() == 3);
}

TEST_CASE("a resumed run says so and goes on counting", "[hooks]") {
  HookedRun run(tiny_gpt());
  RunState state = state_at(4, 64);
  state.attempt = 2;
  run.run(state);
  REQUIRE(run.metrics("resume").size() == 1);
  CHECK(run.metrics("resume")[0]["step"] == 4);
  CHECK(run.metrics("resume")[0]["attempt"] == 2);
  CHECK(steps_of(run.metrics("train")) == Steps{5, 6});
  CHECK(run.metrics("train")[1]["samples"] == 96);
}

TEST_CASE("status.json tells where the run stands", "[hooks]") {
  HookedRun run(tiny_gpt());
  run.run();
  const Json status = Json::parse(read_text(run.folder() / "status.json"));
  CHECK(status["state"] == "finished");
  CHECK(status["step"] == 6);
  CHECK(status["total"] == 6);
  CHECK(status["attempt"] == 1);
  CHECK(status["pid"] == getpid());
  CHECK(status["exit"] == 0);
  CHECK_FALSE(status["host"].get<std::string>().empty());
  CHECK(Json::parse(to_json(RunStatus{.step = 3}))["exit"].is_null());
}

TEST_CASE("a skipped step has no loss and triggers nothing", "[hooks]") {
  Config config = tiny_gpt();
  config.train.nonfinite = NonFinite::skip;
  config.train.max_skipped_steps = 2;
  config.optimizer.lr = std::nan("");  // every update after the first is on NaN weights
  config.checkpoint.every_steps = 2;
  HookedRun run(config);
  CHECK_THROWS_AS(run.run(), Error);
  const std::vector<Json> records = run.metrics("train");
  REQUIRE(steps_of(records) == Steps{1, 2, 2});
  CHECK(records[1]["loss"].is_null());
  CHECK(records[2]["skipped"] == 2);
  CHECK(run.saved().empty());
}

TEST_CASE("failed saves are survived until three in a row or the end", "[hooks]") {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = 1;
  HookedRun run(config);
  run.saves_fail = true;
  try {
    run.run();
    FAIL("survived");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::checkpoint);
  }
  CHECK(run.reports.size() == 2);  // the third failure comes before the recording hook
  const std::string log = read_text(run.folder() / "logs" / "train.log");
  CHECK(log.find("step 1 was not saved (1 of 3 failures in a row that end the run)") !=
        std::string::npos);
  CHECK(log.find("step 2 was not saved (2 of 3") != std::string::npos);
}

TEST_CASE("a failed final save ends the run", "[hooks]") {
  HookedRun run(tiny_gpt());
  run.saves_fail = true;
  CHECK_THROWS_AS(run.run(), Error);
  CHECK(run.reports.size() == 6);
}

}  // namespace colossal::test
