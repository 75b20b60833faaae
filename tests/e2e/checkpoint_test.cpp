// Are checkpoints there when they are needed: saved beside training, by the clock, the best ones,
// weights alone, and exported at the end?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <signal.h>
#include <sstream>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// `train_tiny` with --set for each of `sets`.
Arguments train_with(const fs::path& run_dir, const Arguments& sets, const char* processes = "1") {
  Arguments more = {"--nproc", processes};
  for (const std::string& set : sets) {
    more.insert(more.end(), {"--set", set});
  }
  return train_tiny(run_dir, more);
}

Setting slow_writes() {
  return with_fault("rank=0,kind=write-sleep:300");
}

/// A constant rate: runs of different lengths have equal steps.
const Arguments kAside = {"checkpoint={every_steps: 4, async: true, keep_last: 1}",
                          "scheduler={type: constant}"};

Arguments aside_until(const char* steps) {
  return {kAside[0], kAside[1], std::string("train.steps=") + steps};
}

}  // namespace

TEST_CASE("C3 row 46: latest names no checkpoint that is not written", "[checkpoint]") {
  for (const char* processes : {"1", "2"}) {
    const TempDir folder;
    const fs::path run_dir = folder.path() / "run";
    const fs::path whole = folder.path() / "whole";
    run_expecting(0, train_with(run_dir, aside_until("4"), processes));
    Program program(train_with(run_dir, aside_until("1M"), processes), slow_writes());
    program.await_stderr("saving (async");
    program.await_stderr("step  11/");
    program.send(SIGKILL);
    program.wait();
    CHECK(read_file(run_dir / "checkpoints" / "latest") == "4\n");
    CHECK(stored(run_dir).front() == "step-00000004");
    CHECK(stored(run_dir).back() == "step-00000008.tmp-2");
    const Outcome outcome = run_expecting(0, train_with(run_dir, kAside, processes));
    CHECK(count(outcome.err, "resume    step 5 from ") == 1);
    run_expecting(0, train_with(whole, kAside, processes));
    require_same_tensors(checkpoint(whole, 12), checkpoint(run_dir, 12));
    CHECK(stored(run_dir) == std::vector<std::string>{"step-00000012"});
  }
}

TEST_CASE("C3 row 47: the only checkpoint stays until the next one is written", "[checkpoint]") {
  const TempDir folder;
  run_expecting(0, train_with(folder.path(), aside_until("4")));
  Program program(train_with(folder.path(), aside_until("1M")), slow_writes());
  program.await_stderr("saving (async");
  program.await_stderr("step  10/");
  CHECK(stored(folder.path()).front() == "step-00000004");
  program.send(SIGKILL);
  program.wait();
  run_expecting(0, {"inspect", checkpoint(folder.path(), 4).string(), "--verify"});
}

TEST_CASE("a run that saves beside training equals one that does not", "[checkpoint]") {
  const TempDir folder;
  int number = 0;
  for (const std::string policy : {"parallel.zero.stage=0",
                                   "parallel.zero.stage=1",
                                   "parallel.zero={stage: 3, offload: optimizer+params}",
                                   "parallel.gemini={placement: cpu}",
                                   "train.precision=bf16"}) {
    INFO(policy);
    const fs::path now = folder.path() / fmt::format("now-{}", number);
    const fs::path aside = folder.path() / fmt::format("aside-{}", number++);
    const Arguments same = {policy, "checkpoint.every_steps=3", "checkpoint.keep_last=10"};
    run_expecting(0, train_with(now, same, "2"));
    Arguments async = same;
    async.emplace_back("checkpoint.async=true");
    const Outcome outcome = run_expecting(0, train_with(aside, async, "2"));
    CHECK(count(outcome.err, "saving (async") == 3);
    CHECK(count(outcome.err, "(async, blocked") == 6);
    require_same_losses(now, aside, 0);
    for (const int step : {3, 6, 9, 12}) {
      require_same_tensors(checkpoint(now, step), checkpoint(aside, step));
    }
    CHECK(stored(aside).size() == 4);
  }
}

TEST_CASE("a signal waits for the save beside training", "[checkpoint]") {
  const TempDir folder;
  Program program(train_with(folder.path(),
                             {"checkpoint={every_steps: 4, async: true, keep_last: 9}",
                              "train.steps=1M",
                              "parallel.zero.stage=1"},
                             "2"),
                  with_fault("rank=1,kind=write-sleep:2"));
  program.await_stderr("saving (async");
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  INFO(outcome.err);
  CHECK(outcome.code == 75);
  const std::vector<std::string> names = stored(folder.path());
  REQUIRE(names.size() >= 2);
  CHECK(names.front() == "step-00000004");
  CHECK(count(names.back(), ".tmp-") == 0);
  run_expecting(0, {"inspect", folder.path().string(), "--verify"});
}

TEST_CASE("a disk that refuses beside training ends a run after three times", "[checkpoint]") {
  const TempDir folder;
  const Outcome outcome = run_expecting(
      5,
      train_with(folder.path(),
                 {"checkpoint={every_steps: 2, async: true}", "parallel.zero.stage=1"},
                 "2"),
      with_fault("rank=1,kind=write-error:100"));
  INFO(outcome.err);
  CHECK(count(outcome.err, "of 3 failures in a row that end the run") >= 2);
  CHECK(times_told(outcome, "[checkpoint-write]") >= 1);
  CHECK(stored(folder.path()).empty());
}

TEST_CASE("all ranks save by the clock of the first", "[checkpoint]") {
  const TempDir folder;
  // 1 ms: whatever a step takes, and whatever the clock of rank 1 says.
  const Outcome outcome = run_expecting(
      0, train_with(folder.path(), {"checkpoint={every_time: 0.001s, keep_last: 20}"}, "2"));
  CHECK(count(outcome.err, "-> checkpoints/step-") >= 2);
  CHECK(last_line(outcome).at("step") == 12);
  run_expecting(0, {"inspect", folder.path().string(), "--verify"});
  const TempDir rare;
  run_expecting(0, train_with(rare.path(), {"checkpoint={every_time: 1h}"}, "2"));
  CHECK(stored(rare.path()) == std::vector<std::string>{"step-00000012"});
}

TEST_CASE("the best checkpoint stays through a resume", "[checkpoint]") {
  const TempDir folder;
  // The loss of the evaluation rises with a rate like this, so an early step stays the best.
  const Arguments sets = {
      "checkpoint={every_steps: 2, keep_last: 1, keep_best: {metric: eval/loss, mode: min}}",
      "eval={every_steps: 2, at_end: true}",
      "scheduler={type: constant}"};
  Arguments half = sets;
  half.emplace_back("train.steps=6");
  run_expecting(0, train_with(folder.path(), half));
  run_expecting(0, train_with(folder.path(), sets, "2"));
  double best = 1e9;
  int best_step = 0;
  for (const auto& [step, record] : records(folder.path(), "eval")) {
    const double loss = record.at("loss").get<double>();
    best_step = loss <= best ? step : best_step;
    best = std::min(best, loss);
  }
  std::vector<std::string> expected = {fmt::format("step-{:08}", best_step), "step-00000012"};
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  CHECK(stored(folder.path()) == expected);
  const Outcome outcome = run_expecting(
      0, {"inspect", checkpoint(folder.path(), best_step).string(), "--format", "json"});
  CHECK(Json::parse(outcome.out).at("state").at("metrics").at("eval/loss") == best);
}

TEST_CASE("weights alone serve every command but a resume", "[checkpoint]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Arguments weights = {"checkpoint={every_steps: 6, content: weights}"};
  const Outcome trained = run_expecting(0, train_with(run_dir, weights, "2"));
  CHECK(count(trained.err, "[weights-only-run]") == 1);
  CHECK(count(run_expecting(0, {"inspect", run_dir.string(), "--verify"}).out, "weights only") ==
        1);
  const Outcome evaluated = run_expecting(0, {"eval", "--checkpoint", run_dir.string()});
  CHECK(last_line(evaluated).at("step") == 12);
  const fs::path file = folder.path() / "out" / "model.safetensors";
  run_expecting(0, {"export", "--checkpoint", run_dir.string(), "-o", file.string()});
  CHECK(fs::file_size(file) > 10'000);
  CHECK(fs::file_size(checkpoint(run_dir, 12) / "rank-0000.h5") < 2 * fs::file_size(file));
  // A run that has ended has nothing to do; one that would go on cannot.
  const Outcome again = run_expecting(0, train_with(run_dir, weights));
  CHECK(count(again.err, "[output-finished]") == 1);
  for (const char* processes : {"1", "2"}) {
    const Outcome refused =
        run_expecting(5, train_with(run_dir, {weights[0], "train.steps=20"}, processes));
    INFO(refused.err);
    CHECK(times_told(refused, "[checkpoint-weights-only]") == 1);
    CHECK(count(refused.err, "model.init_from") >= 1);
  }
  Arguments elsewhere = train_with(folder.path() / "other", {"train.steps=20"});
  elsewhere.insert(elsewhere.end(), {"--resume", checkpoint(run_dir, 6).string()});
  CHECK(times_told(run_expecting(5, elsewhere), "[checkpoint-weights-only]") == 1);
}

TEST_CASE("the weights are exported when a run ends, and only then", "[checkpoint]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const fs::path file = run_dir / "export" / "step-00000012" / "model.safetensors";
  const Arguments sets = {"checkpoint={every_steps: 6, export_at_end: safetensors}"};
  const Outcome outcome = run_expecting(0, train_with(run_dir, sets, "2"));
  CHECK(count(outcome.err, "export    " + file.string()) == 1);
  CHECK(last_line(outcome).at("step") == 12);  // the summary stays the last line
  const fs::path by_hand = folder.path() / "hand" / "model.safetensors";
  run_expecting(0, {"export", "--checkpoint", run_dir.string(), "-o", by_hand.string()});
  CHECK(read_file(file) == read_file(by_hand));
  CHECK(read_file(file.parent_path() / "config.json") ==
        read_file(by_hand.parent_path() / "config.json"));
  fs::remove_all(run_dir / "export");  // lost, or the run died before it: the next start makes it
  run_expecting(0, train_with(run_dir, sets));
  CHECK(read_file(file) == read_file(by_hand));

  const fs::path stopped = folder.path() / "stopped";
  Program program(train_with(stopped, {sets[0], "train.steps=1M"}));
  program.await_stderr("step  2/");
  program.send(SIGTERM);
  CHECK(program.wait().code == 75);
  CHECK_FALSE(fs::exists(stopped / "export"));
}

TEST_CASE("a run that trained its last steps again left the old export", "[checkpoint]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const fs::path file = run_dir / "export" / "step-00000012" / "model.safetensors";
  const std::string exports = "checkpoint={every_steps: 6, export_at_end: safetensors}";
  run_expecting(0, train_with(run_dir, {exports}));
  const std::string first = read_file(file);
  fs::remove_all(checkpoint(run_dir, 12));
  const Outcome again = run_expecting(0, train_with(run_dir, {exports, "optimizer.lr=5e-3"}));
  CHECK(count(again.err, "resume    step 7 from ") == 1);
  const fs::path by_hand = folder.path() / "hand" / "model.safetensors";
  run_expecting(0, {"export", "--checkpoint", run_dir.string(), "-o", by_hand.string()});
  CHECK(read_file(file) == read_file(by_hand));
  CHECK(read_file(file) != first);
}

TEST_CASE("a run that began at its end was exported from a folder that is not there",
          "[checkpoint]") {
  const TempDir folder;
  const Arguments sets = {"checkpoint={every_steps: 6, export_at_end: safetensors}"};
  const fs::path donor = folder.path() / "donor";
  const fs::path exported = fs::path("export") / "step-00000012" / "model.safetensors";
  run_expecting(0, train_with(donor, sets));
  const fs::path other = folder.path() / "other";
  const Outcome outcome = run_expecting(
      0, joined({train_with(other, sets), {"--resume", checkpoint(donor, 12).string()}}));
  CHECK(count(outcome.err, "[output-finished]") == 1);
  CHECK(read_file(other / exported) == read_file(donor / exported));

  // And one whose export failed had not come to its first step.
  fs::remove_all(donor / "export");
  fs::create_directory(donor / "export");
  write_file(donor / "export" / "step-00000012", "no folder");
  const Outcome failed = run(train_with(donor, sets));
  INFO(failed.err);
  CHECK(failed.code != 0);
  CHECK(count(failed.err, "[internal]") == 0);
  const Json status = Json::parse(read_file(donor / "status.json"));
  CHECK(status.at("state") == "failed");
  CHECK(status.at("step") == 12);
}

TEST_CASE("C3 row 49: a flipped byte is named with file and tensor, and an older one serves",
          "[checkpoint]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_with(run_dir, {}));
  const fs::path damaged = checkpoint(run_dir, 12) / "rank-0000.h5";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() / 2] ^= 1;
  write_file(damaged, bytes);
  Arguments named = train_with(folder.path() / "other", {"train.steps=13"});
  named.insert(named.end(), {"--resume", checkpoint(run_dir, 12).string()});
  const Outcome refused = run_expecting(5, named);  // a path means that one and no other
  INFO(refused.err);
  CHECK(count(refused.err, "tensor ") >= 1);
  CHECK(count(refused.err, "rank-0000.h5") >= 1);
  const Outcome older = run_expecting(0, train_with(run_dir, {"train.steps=13"}));
  INFO(older.err);
  CHECK(count(older.err, "step-00000012 is damaged and passed over: tensor ") == 1);
  CHECK(count(older.err, "rank-0000.h5") >= 1);
  CHECK(count(older.err, "resume    step 7 from ") == 1);
  CHECK(last_line(older).at("step") == 13);
}

TEST_CASE("without checksums a flipped byte goes unnoticed, as its key says", "[checkpoint]") {
  const TempDir folder;
  run_expecting(0, train_with(folder.path(), {"checkpoint={every_steps: 6, checksum: false}"}));
  const Outcome verified = run_expecting(0, {"inspect", folder.path().string(), "--verify"});
  CHECK(count(verified.out, "without a checksum") == 1);
  const Outcome more = run_expecting(0, train_with(folder.path(), {"train.steps=13"}));
  CHECK(count(more.err, "resume    step 13 from ") == 1);
}

TEST_CASE("an old run made room for one whose weights did not fit", "[checkpoint]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_with(run_dir, {}));
  const fs::path nothing = folder.path() / "nothing";
  const Outcome refused = run_expecting(
      4, joined({train_with(run_dir, {"model.init_from=" + nothing.string()}), {"--overwrite"}}));
  CHECK(count(refused.err, "[file-not-found]") == 1);
  CHECK_FALSE(fs::exists(run_dir.string() + ".old-1"));
  CHECK(fs::exists(checkpoint(run_dir, 12)));
}

TEST_CASE("C3 row 53: checkpoints are ordered by number, and keep_every keeps", "[checkpoint]") {
  const TempDir folder;
  run_expecting(
      0, train_with(folder.path(), {"checkpoint={every_steps: 1, keep_last: 2, keep_every: 5}"}));
  CHECK(
      stored(folder.path()) ==
      std::vector<std::string>{"step-00000005", "step-00000010", "step-00000011", "step-00000012"});
}

TEST_CASE("whatever --allow is offered is taken", "[checkpoint]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));
  Arguments ramp = {"--set",
                    "train.batch_ramp={start: 2, increment: 2, samples: 8}",
                    "--set",
                    "train.micro_batch_size=2",
                    "--set",
                    "train.steps=30"};
  const Outcome refused = run_expecting(5, train_tiny(folder.path(), ramp));
  std::istringstream words(refused.err.substr(refused.err.find("[resume-needs-allow]")));
  int offered = 0;
  for (std::string word, before; words >> word; before = word) {
    if (before == "--allow" && word.find('.') != std::string::npos) {
      ramp.insert(ramp.end(), {"--allow", word});
      ++offered;
    }
  }
  CHECK(offered >= 3);
  run_expecting(0, train_tiny(folder.path(), ramp));
}
