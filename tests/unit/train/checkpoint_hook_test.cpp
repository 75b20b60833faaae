// Is what must be saved saved when it must be, at once or beside training, and all the same?
#include "train/checkpoint_hook.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "memory/gauge.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/hooks.hpp"
#include "train/snapshot.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace colossal::test {

namespace fs = std::filesystem;

namespace {

using Steps = std::vector<std::int64_t>;

/// Calls a function after each step, behind all other hooks.
class AfterStep : public Hook {
 public:
  explicit AfterStep(std::function<void(std::int64_t)> call) : call_(std::move(call)) {}
  void on_step(Trainer&, const StepReport& report) override {
    if (call_) {
      call_(report.step);
    }
  }

 private:
  std::function<void(std::int64_t)> call_;
};

/// A run in a folder of its own, and what it left there.
struct SavedRun {
  explicit SavedRun(Config given) : config(std::move(given)), context(config) {
    config.run.output_dir = folder.path().string();
  }

  void run(std::function<void(std::int64_t step)> after_step = {}) {
    log::configure({.level = log::Level::info, .rank = 0, .folder = folder.path() / "logs"});
    const std::unique_ptr<RunDir> run_dir = RunDir::open(folder.path(), 0);
    TrainerParts parts = build(config, context, {});
    CheckpointHook* checkpoints = nullptr;
    const Stopwatch watch;
    parts.wishes = [&](double) {
      const Wishes mine{.stop = stop_at == ++asked ? StopReason::signal : StopReason::none,
                        .save = checkpoints->is_due()};
      if (mine.save) {
        due.push_back(asked);
        due_seconds.push_back(watch.seconds());
      }
      return mine;
    };
    Trainer trainer(std::move(parts), {});
    const std::unique_ptr<World> world = World::connect({}, {}, {});
    checkpoints = &add_standard_hooks(trainer, run_dir.get(), *world);
    trainer.add_hook(std::make_unique<AfterStep>(std::move(after_step)));
    try {
      trainer.run();
    } catch (...) {
      log::flush();
      throw;
    }
    log::flush();
    mean_save_seconds = trainer.mean_save_seconds();
  }

  [[nodiscard]] Steps saved() const {
    Steps steps;
    for (const CheckpointInfo& info : list_checkpoints(folder.path() / "checkpoints")) {
      CHECK(info.complete);
      steps.push_back(info.step);
    }
    return steps;
  }
  [[nodiscard]] fs::path checkpoint(std::int64_t step) const {
    return folder.path() / "checkpoints" / fmt::format("step-{:08}", step);
  }
  [[nodiscard]] std::string log() const { return read_text(folder.path() / "logs" / "train.log"); }

  TempDir folder;
  Config config;
  ParallelContext context;
  std::int64_t stop_at = 0;  ///< step after which the run is asked to stop; 0: never
  std::int64_t asked = 0;
  Steps due;  ///< steps at which the clock said so
  std::vector<double> due_seconds;
  double mean_save_seconds = 0;
};

Config saving(bool async, std::int64_t every = 2) {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = every;
  config.checkpoint.keep_last = 10;
  config.checkpoint.async = async;
  return config;
}

/// Sets COLOSSAL_FAULT for its own life.
class Fault {
 public:
  explicit Fault(const char* text) { setenv("COLOSSAL_FAULT", text, 1); }
  ~Fault() { unsetenv("COLOSSAL_FAULT"); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
};

void require_same(const SavedRun& a, const SavedRun& b, std::int64_t step) {
  InspectOptions against;
  against.json = true;
  against.diff = b.checkpoint(step);
  const auto report = nlohmann::json::parse(inspect(a.checkpoint(step), against));
  INFO(report.dump());
  CHECK(report.at("diff").at("equal") == true);
  RunState first = read_state(a.checkpoint(step));
  const RunState second = read_state(b.checkpoint(step));
  first.config_yaml = second.config_yaml;
  CHECK(first == second);
}

}  // namespace

TEST_CASE("what is saved beside training is what is saved at once", "[checkpoint_hook]") {
  SavedRun now(saving(false));
  now.run();
  SavedRun aside(saving(true));
  aside.run();
  CHECK(now.saved() == Steps{2, 4, 6});
  REQUIRE(aside.saved() == now.saved());
  for (const std::int64_t step : now.saved()) {
    require_same(now, aside, step);
  }
  CHECK(count(aside.log(), "saving (async, blocked ") == 2);  // the last one has nothing beside it
  CHECK(count(aside.log(), " s (async, blocked ") == 2);
  CHECK(count(aside.log(), "-> checkpoints/step-0000000") == 3);
  CHECK(aside.mean_save_seconds > 0);
}

TEST_CASE("the copy is of the step that is saved, whatever training does meanwhile",
          "[checkpoint_hook]") {
  SavedRun now(saving(false, 1));
  now.run();
  const Fault slow("rank=0,kind=write-sleep:1");  // several steps go by while step 1 is written
  SavedRun aside(saving(true, 4));
  aside.config.train.steps = 6;
  aside.run();
  CHECK(aside.saved() == Steps{4, 6});
  require_same(now, aside, 4);
}

TEST_CASE("nothing names a checkpoint before it is written, and one is under way at most",
          "[checkpoint_hook]") {
  const Fault slow("rank=0,kind=write-sleep:1");
  SavedRun run(saving(true, 2));
  run.config.checkpoint.keep_last = 1;
  run.config.checkpoint.at_end = false;
  run.config.train.steps = 5;
  std::vector<Steps> seen;
  run.run([&](std::int64_t) { seen.push_back(run.saved()); });
  REQUIRE(seen.size() == 5);
  CHECK(seen[1].empty());  // being written
  CHECK(seen[2].empty());
  CHECK(seen[3] == Steps{2});      // the next save has waited for it
  CHECK(seen[4] == Steps{2});      // and is not whole yet: the older one stays
  CHECK(run.saved() == Steps{4});  // the end has waited, and then removed it
  CHECK(read_text(run.folder.path() / "checkpoints" / "latest") == "4\n");
}

TEST_CASE("a save beside training is done while training goes on", "[checkpoint_hook]") {
  SavedRun run(saving(true, 1));
  run.config.checkpoint.at_end = false;
  run.config.train.steps = 3;
  std::vector<Steps> seen;
  run.run([&](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    seen.push_back(run.saved());
  });
  REQUIRE(seen.size() == 3);
  CHECK(seen[1] == Steps{1});  // found to be done after the next step
  CHECK(run.saved() == Steps{1, 2, 3});
}

TEST_CASE("a stop waits for what is being written and saves its own step", "[checkpoint_hook]") {
  const Fault slow("rank=0,kind=write-sleep:1");
  SavedRun run(saving(true, 2));
  run.stop_at = 3;
  run.run();
  CHECK(run.saved() == Steps{2, 3});
  SavedRun due(saving(true, 2));
  due.stop_at = 2;
  due.run();
  CHECK(due.saved() == Steps{2});
  CHECK(count(due.log(), "async") == 0);  // a run that ends saves at once
}

TEST_CASE("failures beside training count like others", "[checkpoint_hook]") {
  SavedRun run(saving(true, 1));
  {
    const Fault full("rank=0,kind=write-error:200");
    try {
      run.run();
      FAIL("survived");
    } catch (const Error& error) {
      CHECK(error.id() == "checkpoint-write");
      CHECK(error.exit_code() == 5);
    }
  }
  const std::string log = run.log();
  CHECK(count(log, "step 1 was not saved (1 of 3 failures in a row that end the run)") == 1);
  CHECK(count(log, "step 2 was not saved (2 of 3") == 1);
  CHECK(run.saved().empty());
  CHECK(std::distance(fs::directory_iterator(run.folder.path() / "checkpoints"), {}) == 0);

  SavedRun late(saving(true, 5));  // fails beside step 6, whose own save works
  setenv("COLOSSAL_FAULT", "rank=0,kind=write-error:200", 1);
  late.run([](std::int64_t step) {
    if (step == 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      unsetenv("COLOSSAL_FAULT");
    }
  });
  CHECK(count(late.log(), "step 5 was not saved (1 of 3") == 1);
  CHECK(late.saved() == Steps{6});
}

TEST_CASE("without host memory for a copy training waits", "[checkpoint_hook]") {
  SavedRun run(saving(true, 4));
  run.run([](std::int64_t step) {  // what the run itself needs it has
    MemoryGauge& host = gauge(MemoryKind::host);
    host.set_limit(step < 4 ? std::optional(host.use().current + 1000) : std::nullopt);
  });
  CHECK(run.saved() == Steps{4, 6});
  CHECK(count(run.log(), "no host memory for a copy") == 1);
  SavedRun now(saving(false, 4));
  now.run();
  require_same(now, run, 4);
}

TEST_CASE("a run that fails does not wait for a save forever, and leaves no half of it",
          "[checkpoint_hook]") {
  SavedRun run(saving(true, 1));
  CHECK_THROWS_AS(run.run([](std::int64_t step) {
    check(step < 2, ErrorKind::numerics, "test", "on purpose");
  }),
                  Error);
  for (const auto& entry : fs::directory_iterator(run.folder.path() / "checkpoints")) {
    CHECK(entry.path().string().find(".tmp-") == std::string::npos);
  }
}

TEST_CASE("every_time saves by the clock, with and without every_steps", "[checkpoint_hook]") {
  const auto waiting = [](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  };
  Config config = tiny_gpt();
  config.checkpoint.keep_last = 10;
  config.checkpoint.every_time_seconds = 0.75;
  for (const bool also_steps : {false, true}) {
    config.checkpoint.every_steps = also_steps ? std::optional<std::int64_t>(2) : std::nullopt;
    SavedRun run(config);
    run.run(waiting);
    // Two steps take more than the time, whatever the machine does; its clock says which were due.
    std::set<std::int64_t> expected(run.due.begin(), run.due.end());
    CHECK(expected.size() >= (also_steps ? 0 : 2));
    expected.insert(6);
    if (also_steps) {
      expected.insert({2, 4});
    }
    CHECK(run.saved() == Steps(expected.begin(), expected.end()));
    for (std::size_t i = 1; i < run.due.size(); ++i) {
      CHECK(run.due_seconds[i] - run.due_seconds[i - 1] >= 0.7);  // the clock starts anew at a save
    }
  }
  config.checkpoint.every_steps = std::nullopt;
  config.checkpoint.every_time_seconds = 1e-9;
  SavedRun always(config);
  always.run();
  CHECK(always.saved() == Steps{1, 2, 3, 4, 5, 6});
  config.checkpoint.every_time_seconds = 3600;
  SavedRun never(config);
  never.run();
  CHECK(never.saved() == Steps{6});
}

TEST_CASE("a checkpoint holds what was measured of its step", "[checkpoint_hook]") {
  Config config = saving(false, 2);
  config.eval.every_steps = 4;
  SavedRun run(config);
  run.run();
  const auto two = read_state(run.checkpoint(2)).metrics;
  const auto four = read_state(run.checkpoint(4)).metrics;
  CHECK(two.contains("train/loss"));
  CHECK_FALSE(two.contains("eval/loss"));
  CHECK(four.at("eval/ppl") == Approx(std::exp(four.at("eval/loss"))));
  CHECK_FALSE(read_state(run.checkpoint(6)).metrics.contains("eval/loss"));

  Config rows = tiny_mlp();
  rows.eval.at_end = true;
  rows.checkpoint.keep_best = KeepBestConfig{"eval/accuracy", BestMode::max};
  SavedRun mlp(rows);
  mlp.run();
  CHECK(read_state(mlp.checkpoint(6)).metrics.contains("eval/accuracy"));
  CHECK_FALSE(read_state(mlp.checkpoint(6)).metrics.contains("eval/ppl"));
}

TEST_CASE("the best checkpoint of a run stays", "[checkpoint_hook]") {
  Config config = saving(false, 1);
  SavedRun all(config);
  all.run();
  std::map<double, std::int64_t> by_loss;
  for (const std::int64_t step : all.saved()) {
    by_loss[read_state(all.checkpoint(step)).metrics.at("train/loss")] = step;
  }
  config.checkpoint.keep_last = 1;
  for (const BestMode mode : {BestMode::min, BestMode::max}) {
    config.checkpoint.keep_best = KeepBestConfig{"train/loss", mode};
    SavedRun run(config);
    run.run();
    const std::int64_t best =
        mode == BestMode::min ? by_loss.begin()->second : by_loss.rbegin()->second;
    CHECK(run.saved() == (best == 6 ? Steps{6} : Steps{best, 6}));
  }
}

TEST_CASE("weights alone are saved alone", "[checkpoint_hook]") {
  for (const bool async : {false, true}) {
    Config config = saving(async, 4);
    config.checkpoint.content = CheckpointContent::weights;
    SavedRun run(config);
    run.run();
    CHECK(run.saved() == Steps{4, 6});
    InspectOptions tensors;
    tensors.json = true;
    tensors.tensors = true;
    const auto report = nlohmann::json::parse(inspect(run.checkpoint(4), tensors));
    for (const auto& tensor : report.at("tensors")) {
      CHECK(tensor.at("name").get<std::string>().starts_with("model/"));
    }
    CHECK(report.at("state").at("content") == "weights");
    CHECK(report.at("state").at("step") == 4);
  }
}

TEST_CASE("a copy has the regions of its records and the values of its moment",
          "[checkpoint_hook]") {
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  Trainer trainer(build(config, context, {}), {});
  std::vector<TensorRecord> records = trainer.records();
  records.front().owner = false;
  const std::int64_t before = gauge(MemoryKind::host).use().current;
  std::vector<TensorRecord> copies = snapshot(records);
  CHECK(gauge(MemoryKind::host).use().current > before);
  CHECK_FALSE(copies.front().owner);
  CHECK(copies.front().name == records.front().name);
  CHECK(copies.front().global == records.front().global);
  const at::Tensor live = records[1].local;
  const at::Tensor kept = copies[1].local.clone();
  CHECK(at::equal(kept, live.narrow(0, 0, kept.size(0))));
  live.add_(1);
  CHECK(at::equal(copies[1].local, kept));
  copies.clear();
  CHECK(gauge(MemoryKind::host).use().current == before);
}

}  // namespace colossal::test
