// Which failures does a launcher try again, how often and from where?
#include "train/restart.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/spawn.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

namespace colossal::test {

using namespace std::chrono_literals;

namespace {

LaunchOutcome failed(int exit_code) {
  return {exit_code, RunFailure{1, exit_code, "peer-lost", "gone", {}}};
}

bool says(const RestartDecision& decision, const std::string& part) {
  return decision.text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("waits double, and end with the last restart", "[restart]") {
  RestartPolicy policy(4, 5s);
  for (const auto& [step, wait] : {std::pair{10, 5s}, {20, 10s}, {30, 20s}, {40, 40s}}) {
    const RestartDecision decision = policy.decide(failed(8), step);
    REQUIRE(decision.wait);
    CHECK(*decision.wait == wait);
  }
  const RestartDecision last = policy.decide(failed(8), 50);
  CHECK_FALSE(last.wait);
  CHECK(says(last, "all 4 are used up"));
}

TEST_CASE("only lost and killed ranks are started again", "[restart]") {
  for (const int code : {8, 137, 139, 134, 143}) {
    INFO(code);
    CHECK(RestartPolicy(1, 5s).decide(failed(code), 3).wait == 5000ms);
  }
  for (const int code : {1, 2, 3, 4, 5, 6, 7, 9, 75, 127, 128}) {
    INFO(code);
    const RestartDecision decision = RestartPolicy(1, 5s).decide(failed(code), 3);
    CHECK_FALSE(decision.wait);
    CHECK(says(decision, std::to_string(code)));
  }
  CHECK(RestartPolicy(0, 5s).decide(failed(137), 3).text.empty());
  CHECK_FALSE(RestartPolicy(0, 5s).decide(failed(137), 3).wait);
}

TEST_CASE("without a newer checkpoint there is one restart only", "[restart]") {
  RestartPolicy never_saved(9, 1s);
  CHECK(says(never_saved.decide(failed(137), std::nullopt), "from step 0"));
  const RestartDecision again = never_saved.decide(failed(137), std::nullopt);
  CHECK_FALSE(again.wait);
  CHECK(says(again, "nothing was saved since the last one, from step 0"));
  // A checkpoint that has appeared since counts, an equal or older one does not.
  RestartPolicy policy(9, 1s);
  CHECK(policy.decide(failed(8), std::nullopt).wait);
  CHECK(policy.decide(failed(8), 0).wait);
  CHECK(policy.decide(failed(8), 7).wait == 4000ms);
  CHECK_FALSE(policy.decide(failed(8), 7).wait);
  CHECK_FALSE(policy.decide(failed(8), 6).wait);
  CHECK(policy.decide(failed(8), 8).wait == 8000ms);
}

TEST_CASE("a restart names where it goes on", "[restart]") {
  RestartPolicy policy(3, 200ms);
  CHECK(policy.decide(failed(137), 6).text ==
        "restart   1 of 3 in 0.2 s, from the checkpoint of step 6");
}

TEST_CASE("the ranks of a restart continue, whatever was asked at first", "[restart]") {
  using Arguments = std::vector<std::string>;
  const Arguments wanted = {"colossal-train", "train", "--resume=auto", "a.yaml", "--set", "x=1"};
  for (const Arguments& given :
       {Arguments{"colossal-train", "train", "a.yaml", "--set", "x=1"},
        Arguments{"colossal-train", "train", "--overwrite", "a.yaml", "--set", "x=1"},
        Arguments{"colossal-train", "train", "a.yaml", "--resume", "never", "--set", "x=1"},
        Arguments{"colossal-train", "train", "a.yaml", "--set", "x=1", "--resume=/old/run"}}) {
    CHECK(to_resume(given, true) == wanted);
  }
  CHECK(to_resume(wanted, true) == wanted);  // of the second restart
}

TEST_CASE("a run begun from a checkpoint restarted with random weights before its own first save",
          "[restart]") {
  using Arguments = std::vector<std::string>;
  for (const Arguments& given :
       {Arguments{"colossal-train", "train", "a.yaml", "--resume=/old/run"},
        Arguments{"colossal-train", "train", "a.yaml", "--resume", "/old/run"},
        Arguments{"colossal-train", "train", "a.yaml", "--set", "checkpoint.resume=/old/run"},
        Arguments{"colossal-train", "train", "a.yaml"}}) {
    CHECK(to_resume(given, false) == given);
  }
  // A new start stays one, whatever the configuration resumes from.
  TrainOptions anew;
  anew.overwrite = true;
  anew.arguments = {"train", "a.yaml", "--overwrite"};
  anew.config.run_time = "now";
  CHECK(to_resume(rank_arguments(anew), false) ==
        Arguments{"colossal-train", "train", "--resume=never", "--run-time=now", "a.yaml"});
}

TEST_CASE("options that the launcher adds stood behind a --", "[restart]") {
  using Arguments = std::vector<std::string>;
  TrainOptions options;
  options.arguments = {"train", "--nproc", "2", "--overwrite=true", "--", "a.yaml"};
  options.config.run_time = "now";
  const Arguments first = rank_arguments(options);
  CHECK(first ==
        Arguments{"colossal-train", "train", "--run-time=now", "--overwrite=true", "--", "a.yaml"});
  CHECK(to_resume(first, true) ==
        Arguments{"colossal-train", "train", "--resume=auto", "--run-time=now", "--", "a.yaml"});
}

TEST_CASE("the wait before a restart grew beyond all numbers", "[restart]") {
  RestartPolicy policy(100, 5s);
  RestartPolicy slow(100, 100'000s);
  for (int k = 0; k < 100; ++k) {
    CHECK(policy.decide(failed(8), k).wait == 5s * (1 << std::min(k, 12)));
    const auto wait = slow.decide(failed(8), k).wait;
    REQUIRE(wait);
    CHECK(*wait >= 100'000s);
    CHECK(wait->count() <= std::numeric_limits<int>::max());  // what poll() takes
  }
}

TEST_CASE("a run that was asked to stop and failed was started again", "[restart]") {
  LaunchOutcome outcome = failed(137);
  outcome.asked_to_stop = true;
  const RestartDecision decision = RestartPolicy(3, 5s).decide(outcome, 3);
  CHECK_FALSE(decision.wait);
  CHECK(says(decision, "asked to stop"));
}

TEST_CASE("weights alone were restarted into a certain error", "[restart]") {
  RestartPolicy policy(3, 5s);
  const RestartDecision decision = policy.decide(failed(137), 6, true);
  CHECK_FALSE(decision.wait);
  CHECK(says(decision, "no: the checkpoint of step 6 holds weights alone"));
  CHECK(policy.decide(failed(137), 6).wait == 5000ms);

  const TempDir folder;
  CHECK_FALSE(newest_is_end(folder.path()));
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const auto trainer = make_trainer(config, context, 2);
  for (const std::int64_t step : {0, 2}) {  // those of step 0 are a beginning
    RunState state = state_at(step, 16 * step);
    state.weights_only = true;
    save_checkpoint(
        folder.path() / "checkpoints", state, trainer->records(), context.comm(data_axes()), {});
    CHECK(newest_is_end(folder.path()) == (step == 2));
  }
  save_checkpoint(folder.path() / "checkpoints",
                  state_at(4, 64),
                  trainer->records(),
                  context.comm(data_axes()),
                  {});
  CHECK_FALSE(newest_is_end(folder.path()));
}

TEST_CASE("the newest checkpoint is the newest complete one", "[restart]") {
  const TempDir folder;
  CHECK_FALSE(newest_checkpoint(folder.path()));
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  for (const std::int64_t step : {2, 10}) {
    const auto trainer = make_trainer(config, context, step);
    trainer->run();
    save(*trainer, folder.path() / "checkpoints", context.comm(data_axes()));
  }
  CHECK(newest_checkpoint(folder.path()) == 10);  // not 2, the last by name of other trainers
  std::filesystem::remove(folder.path() / "checkpoints" / "step-00000010" / "manifest.json");
  CHECK(newest_checkpoint(folder.path()) == 2);
  const TempDir other;
  std::ofstream(other.path() / "checkpoints") << "no folder";
  CHECK_FALSE(newest_checkpoint(other.path()));
}

}  // namespace colossal::test
