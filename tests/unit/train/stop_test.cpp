// Does the loop stop after the step in which somebody wished it, save, and say why?
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/hooks.hpp"
#include "train/session.hpp"
#include "train/trainer.hpp"

#include <ATen/ops/equal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

using Steps = std::vector<std::int64_t>;

/// Which of the two ends of a run a hook saw.
class EndHook : public Hook {
 public:
  explicit EndHook(std::string& seen) : seen_(seen) {}
  void on_end(Trainer&) override { seen_ += "end"; }
  void on_stop(Trainer&) override { seen_ += "stop"; }

 private:
  std::string& seen_;
};

/// A run in a folder of its own whose wishes are those of `at`, by step.
struct StoppedRun {
  explicit StoppedRun(Config given) : config(std::move(given)), context(config) {
    config.run.output_dir = folder.path().string();
  }

  void run(const std::function<Wishes(std::int64_t step)>& at) {
    const std::unique_ptr<RunDir> run_dir = RunDir::open(folder.path(), 0);
    TrainerParts parts = build(config, context, {});
    std::int64_t step = 0;
    parts.wishes = [&](double mean_step_seconds) {
      means.push_back(mean_step_seconds);
      return at(++step);
    };
    Trainer trainer(std::move(parts), {});
    const std::unique_ptr<World> world = World::connect({}, {}, {});
    add_standard_hooks(trainer, run_dir.get(), *world);
    trainer.add_hook(std::make_unique<SaveRequestHook>([this] { late_request = false; }));
    trainer.add_hook(std::make_unique<EndHook>(ending));
    trainer.add_hook(std::make_unique<RecordingHook>(reports));
    state = trainer.run();
    stopped = trainer.stopped();
    mean_save = trainer.mean_save_seconds();
    tensors = copy_records(trainer);
  }

  [[nodiscard]] Steps saved() const {
    Steps steps;
    if (std::filesystem::is_directory(folder.path() / "checkpoints")) {
      for (const CheckpointInfo& info : list_checkpoints(folder.path() / "checkpoints")) {
        steps.push_back(info.step);
      }
    }
    return steps;
  }
  [[nodiscard]] nlohmann::json status() const {
    return nlohmann::json::parse(read_text(folder.path() / "status.json"));
  }

  TempDir folder;
  Config config;
  ParallelContext context;
  std::string ending;
  std::vector<StepReport> reports;
  std::vector<double> means;
  RunState state;
  StopReason stopped = StopReason::none;
  bool late_request = false;  ///< to save, of this rank
  double mean_save = 0;
  Tensors tensors;
};

Config saving(std::optional<std::int64_t> every, std::int64_t keep = 10) {
  Config config = tiny_gpt();
  config.checkpoint.every_steps = every;
  config.checkpoint.keep_last = keep;
  return config;
}

}  // namespace

TEST_CASE("a wish to stop ends the run after its step, with a checkpoint", "[stop]") {
  for (const StopReason reason : {StopReason::signal, StopReason::max_time}) {
    StoppedRun run(saving(std::nullopt));
    run.run([&](std::int64_t step) { return Wishes{step >= 3 ? reason : StopReason::none}; });
    CHECK(run.state.step == 3);
    CHECK(run.stopped == reason);
    CHECK(run.reports.size() == 3);
    CHECK(run.reports.back().stop == reason);
    CHECK(run.reports[1].stop == StopReason::none);
    CHECK(run.saved() == Steps{3});
    CHECK(run.ending == "stop");
    CHECK(run.status().at("state") == "stopped");
    CHECK(run.status().at("exit") == 75);
    CHECK(run.status().at("step") == 3);
    CHECK(run.mean_save > 0);
  }
}

TEST_CASE("the first save of a run with a limit took no time", "[stop]") {
  CHECK(assumed_save_seconds(1'000, 3600) == 5);
  CHECK(assumed_save_seconds(20'000'000'000, 8 * 3600) == 200);
  CHECK(assumed_save_seconds(std::int64_t{1} << 50, 8 * 3600) == 2880);  // most of it is for steps
  CHECK(assumed_save_seconds(1'000, 4) == 0.4);
  CHECK(assumed_save_seconds(1'000, 0) == 0);
}

TEST_CASE("a run without any checkpoint was told to continue from one", "[stop]") {
  CHECK(what_is_lost("auto", {}, 7) ==
        "there is no checkpoint, the same command starts at step 1 again");
  CHECK(what_is_lost("auto", {}, 0) == "no step is lost, the same command starts anew");
  CHECK(what_is_lost("auto", 4, 7) ==
        "steps 5 to 7 are lost, the same command continues from the checkpoint of step 4");
  CHECK(what_is_lost("require", 7, 7) ==
        "no step is lost, the same command continues from the checkpoint of step 7");
  CHECK(what_is_lost("runs/other/checkpoints/step-00000004", 4, 7) ==
        "steps 5 to 7 are lost, the same command continues from the checkpoint of step 4");
  CHECK(what_is_lost("never", 6, 7) ==
        "step 7 is lost, --resume auto (without --overwrite) continues from the checkpoint of "
        "step 6");
}

TEST_CASE("a signal is a better reason than the time", "[stop]") {
  // One rank alone cannot have both; what the sum of several would say is the rule for it.
  StoppedRun run(saving(std::nullopt));
  run.run([](std::int64_t) { return Wishes{StopReason::signal}; });
  CHECK(run.state.step == 1);
  CHECK(run.stopped == StopReason::signal);
}

TEST_CASE("a wish during the last step changes nothing", "[stop]") {
  StoppedRun run(saving(std::nullopt));
  run.run(
      [](std::int64_t step) { return Wishes{step == 6 ? StopReason::signal : StopReason::none}; });
  CHECK(run.state.step == 6);
  CHECK(run.stopped == StopReason::none);
  CHECK(run.ending == "end");
  CHECK(run.status().at("state") == "finished");
  CHECK(run.saved() == Steps{6});
}

TEST_CASE("a stopped run and its continuation have the bits of one run", "[stop]") {
  const Config config = saving(std::nullopt);
  StoppedRun run(config);
  run.run(
      [](std::int64_t step) { return Wishes{step == 4 ? StopReason::signal : StopReason::none}; });
  const auto rest =
      make_trainer(run.config, run.context, 6, run.folder.path() / "checkpoints" / "step-00000004");
  const Trained continued = finish(*rest);
  const Trained whole = train(run.config, run.context);
  CHECK(continued.reports.size() == 2);
  for (const auto& [name, tensor] : whole.tensors) {
    INFO(name);
    CHECK(at::equal(tensor, continued.tensors.at(name)));
  }
}

TEST_CASE("a step that is due anyway is saved once", "[stop]") {
  StoppedRun stop(saving(2));
  stop.run([](std::int64_t step) {
    return Wishes{step == 4 ? StopReason::signal : StopReason::none, step == 4};
  });
  CHECK(stop.saved() == Steps{2, 4});
  StoppedRun save(saving(2));
  save.run([](std::int64_t step) { return Wishes{StopReason::none, step == 2 || step == 3}; });
  CHECK(save.saved() == Steps{2, 3, 4, 6});
  CHECK(save.reports[2].save);
  CHECK_FALSE(save.reports[3].save);
  CHECK(save.ending == "end");
}

TEST_CASE("one signal to all ranks saved twice, in neighbouring steps", "[stop]") {
  StoppedRun run(saving(std::nullopt));
  run.run([&](std::int64_t step) {
    const bool asked = std::exchange(run.late_request, step == 3);  // just too late for step 3
    return Wishes{StopReason::none, step == 3 || asked};            // where another rank has it
  });
  CHECK(run.saved() == Steps{3, 6});
}

TEST_CASE("an evaluation that is due does not keep a run that stops", "[stop]") {
  Config config = saving(std::nullopt);
  config.eval.every_steps = 2;
  config.eval.at_end = true;
  StoppedRun run(config);
  run.run(
      [](std::int64_t step) { return Wishes{step == 4 ? StopReason::signal : StopReason::none}; });
  const std::string metrics = read_text(run.folder.path() / "metrics.jsonl");
  CHECK(metrics.find("\"kind\":\"eval\",\"step\":2") != std::string::npos);
  CHECK(metrics.find("\"kind\":\"eval\",\"step\":4") == std::string::npos);
  // The last step is no stop: its evaluation stays.
  StoppedRun last(config);
  last.run(
      [](std::int64_t step) { return Wishes{step == 6 ? StopReason::signal : StopReason::none}; });
  CHECK(read_text(last.folder.path() / "metrics.jsonl").find("\"kind\":\"eval\",\"step\":6") !=
        std::string::npos);
}

TEST_CASE("a run whose first update was skipped is saved all the same when it stops", "[stop]") {
  Config config = saving(1);
  config.train.nonfinite = NonFinite::skip;
  config.optimizer.lr = std::nan("");
  StoppedRun run(config);
  run.run(
      [](std::int64_t step) { return Wishes{step == 3 ? StopReason::signal : StopReason::none}; });
  REQUIRE(run.reports.size() == 3);
  CHECK(run.reports.back().skipped);
  CHECK(run.state.step == 1);
  CHECK(run.state.skipped == 2);
  CHECK(run.saved() == Steps{1});
  CHECK(run.ending == "stop");
}

TEST_CASE("a save that fails when the run stops is an error", "[stop]") {
  for (const std::optional<std::int64_t> every : {std::optional<std::int64_t>(), {2}}) {
    StoppedRun run(saving(every));
    try {
      run.run([&run](std::int64_t step) {  // not before: a run does not begin in such a folder
        std::ofstream(run.folder.path() / "checkpoints") << "a file where a folder should be";
        return Wishes{step == 2 ? StopReason::signal : StopReason::none};
      });
      FAIL("stopped without a checkpoint");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::checkpoint);
    }
  }
}

TEST_CASE("the mean time of a step counts the one that is under way", "[stop]") {
  StoppedRun run(saving(std::nullopt));
  run.run([](std::int64_t) { return Wishes{}; });
  REQUIRE(run.means.size() == 6);
  double steps = 0;
  for (std::size_t i = 0; i < run.means.size(); ++i) {
    steps += run.reports[i].step_seconds;
    CHECK(run.means[i] > 0);
    // Hooks and the update of the step itself are the difference.
    CHECK(run.means[i] * static_cast<double>(i + 1) <= steps + 1.0);
  }
}

}  // namespace colossal::test
