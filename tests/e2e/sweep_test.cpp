// Does a sweep run to its end in a shell, and can it be followed, continued and compared?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <sstream>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A classifier that learns something in a fraction of a second.
const std::string kBase =
    "run: {device: cpu, seed: 7, threads: 1}\n"
    "model: {type: mlp, in_features: 4, layers: [8], out_features: 3, init_std: 0.2}\n"
    "data: {type: synthetic, num_samples: 2k}\n"
    "train: {steps: 30, global_batch_size: 32}\n"
    "optimizer: {type: sgd, lr: 0.1}\n"
    "eval: {at_end: true, every_steps: 10}\n"
    "logging: {every_steps: 10, tensorboard: false}\n";

const std::string kSweep =
    "name: rates\n"
    "base: base.yaml\n"
    "parameters:\n"
    "  optimizer.lr: [1e-4, 0.2]\n"
    "  model.layers: [[8], [16, 8]]\n"
    "run: {output_dir: \"out of ${name}\"}\n";

/// A folder with a base and a sweep of it.
struct SweepFolder {
  explicit SweepFolder(const std::string& sweep = kSweep, const std::string& base = kBase) {
    write_file(dir.path() / "base.yaml", base);
    write_file(file, sweep);
  }
  [[nodiscard]] Outcome sweep(int code,
                              const std::string& command,
                              const Arguments& more = {}) const {
    Arguments all = {"sweep", command, file.string()};
    all.insert(all.end(), more.begin(), more.end());
    return run_expecting(code, all);
  }
  /// Runs a shell script that reads the commands of all trials; returns its exit code. They hold
  /// from where they were printed: here.
  [[nodiscard]] int shell(std::string script) const {
    const std::string commands = (dir.path() / "commands.sh").string();
    write_file(commands, sweep(0, "expand", {"--format", "commands"}).out);
    script.replace(script.find("COMMANDS"), std::string("COMMANDS").size(), commands);
    const std::string line =
        fmt::format("( {} ) > '{}' 2>&1 < /dev/null", script, (dir.path() / "shell.out").string());
    const int status = std::system(line.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    return WEXITSTATUS(status);
  }
  [[nodiscard]] std::string shell_output() const { return read_file(dir.path() / "shell.out"); }
  /// The trials as `command --format json` tells them.
  [[nodiscard]] Json trials(const std::string& command) const {
    return Json::parse(sweep(0, command, {"--format", "json"}).out);
  }

  TempDir dir;
  fs::path file = dir.path() / "s.yaml";
  fs::path out = dir.path() / "out of rates";
};

}  // namespace

TEST_CASE("a sweep runs by a loop over its commands, and collect compares the runs", "[sweep]") {
  const SweepFolder folder;
  const Outcome expanded = folder.sweep(0, "expand");
  CHECK(count(expanded.out, "\n") == 4);
  CHECK(count(expanded.out, "\tpending\t") == 4);
  CHECK(count(expanded.out, R"({"model.layers":[16,8],"optimizer.lr":0.2})") == 1);
  CHECK_FALSE(fs::exists(folder.out));  // expand writes nothing

  REQUIRE(folder.shell("while read -r line; do sh -c \"$line\" || exit; done < COMMANDS") == 0);
  const Outcome status = folder.sweep(0, "status");
  CHECK(count(status.out, "finished  30/30        1     0") == 4);
  CHECK(count(status.out, "4 trials: 4 finished\n") == 1);

  const Json trials = folder.trials("collect");
  REQUIRE(trials.size() == 4);
  for (const Json& trial : trials) {
    const fs::path run = folder.out / fs::path(trial.at("folder").get<std::string>()).filename();
    INFO(trial.dump());
    // the same numbers as in the run's own files
    CHECK(trial.at("loss") == records(run).rbegin()->second.at("loss"));
    const auto evals = records(run, "eval");
    CHECK(trial.at("eval_loss") == evals.rbegin()->second.at("loss"));
    CHECK(trial.at("best_eval_loss") <= trial.at("eval_loss"));
    CHECK(trial.at("accuracy") == evals.rbegin()->second.at("accuracy"));
    CHECK(trial.at("seconds") > 0);
    CHECK(read_file(run / "config.resolved.yaml")
              .find(fmt::format("lr: {} ", trial.at("overrides").at("optimizer.lr").dump())) !=
          std::string::npos);
  }
  // a rate of 1e-4 learns nothing in 30 steps
  CHECK(trials[2].at("eval_loss") < trials[0].at("eval_loss"));
  const Outcome table = folder.sweep(0, "collect");
  CHECK(table.out.starts_with("trial "));
  const std::string csv = read_file(folder.out / "results.csv");
  CHECK(
      csv.starts_with("trial,state,model.layers,optimizer.lr,loss,eval_loss,best_eval_loss,"
                      "accuracy,step,seconds,exit,folder\n"));
  CHECK(count(csv, "\"[16,8]\"") == 2);
  CHECK(count(csv, "\n") == 5);
  CHECK(folder.sweep(0, "collect", {"--format", "csv"}).out == csv);

  // once more: every run is finished already
  REQUIRE(folder.shell("sh -e COMMANDS") == 0);
  CHECK(count(folder.shell_output(), "nothing to do") >= 4);
  CHECK(folder.trials("status")[0].at("attempt") == trials[0].at("attempt"));
}

TEST_CASE("a trial that fails does not stop the others, and is told", "[sweep]") {
  const SweepFolder folder(
      "base: base.yaml\n"
      "method: list\n"
      "run: {output_dir: \"out of rates\"}\n"
      "trials:\n"
      "  - {optimizer.lr: 0.1}\n"
      "  - {optimizer.lr: 1e9, optimizer.momentum: 0.9}\n"
      "  - {optimizer.lr: 0.2}\n");
  CHECK(folder.shell("xargs -d '\\n' -P 2 -n 1 sh -c < COMMANDS") != 0);
  const Json trials = folder.trials("status");
  CHECK(trials[0].at("state") == "finished");
  CHECK(trials[1].at("state") == "failed");
  CHECK(trials[1].at("exit") == 7);
  CHECK(trials[2].at("state") == "finished");
  const Outcome status = folder.sweep(0, "status");
  CHECK(count(status.out, "3 trials: 2 finished, 1 failed\n") == 1);
  CHECK(count(folder.sweep(0, "collect").out, "failed") == 1);
}

TEST_CASE("trials of several processes and words that a shell would change arrive unchanged",
          "[sweep]") {
  const SweepFolder folder(
      "base: base.yaml\n"
      "method: list\n"
      "run: {nproc: 2, output_dir: \"out of rates\"}\n"
      "trials:\n"
      "  - {optimizer.no_decay: [\"*.bias\", \"layers.?'s\"], vars.a: \"$HOME `x`\"}\n",
      "vars: {a: b}\n" + kBase);
  const std::string commands = folder.sweep(0, "expand", {"--format", "commands"}).out;
  CHECK(count(commands, " --nproc 2 ") == 1);
  // the pattern matches no parameter: the program says which one, as it was written
  REQUIRE(folder.shell("sh COMMANDS") == 3);
  CHECK(count(folder.shell_output(), "layers.?'s") >= 1);
}

TEST_CASE("an expansion is the same every time, whatever has run", "[sweep]") {
  const SweepFolder folder(
      "base: base.yaml\n"
      "method: random\n"
      "samples: 3\n"
      "run: {output_dir: \"out of rates\"}\n"
      "parameters: {optimizer.lr: {log_uniform: [0.01, 0.3]}}\n");
  const std::string first = folder.sweep(0, "expand").out;
  CHECK(folder.sweep(0, "expand").out == first);
  REQUIRE(folder.shell("head -n 1 COMMANDS | sh") == 0);
  const std::string after = folder.sweep(0, "expand").out;
  CHECK(count(after, "\tfinished\t") == 1);
  CHECK(count(after, "\tpending\t") == 2);
  std::istringstream a(first);
  std::istringstream b(after);
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
    CHECK(x.substr(0, x.find("\tp")) == y.substr(0, std::min(y.find("\tp"), y.find("\tf"))));
  }
}

TEST_CASE("a changed base is told once trials have run", "[sweep]") {
  const SweepFolder folder;
  REQUIRE(folder.shell("head -n 1 COMMANDS | sh") == 0);
  write_file(folder.dir.path() / "base.yaml", kBase + "checkpoint: {keep_last: 1}\n");
  for (const char* command : {"expand", "status", "collect"}) {
    const Outcome changed = folder.sweep(3, command);
    CHECK(count(changed.err, "[sweep-changed]") == 1);
    CHECK(count(changed.err, "holds 1 trial that") == 1);
    CHECK(changed.out.empty());
    CHECK(count(folder.sweep(0, command, {"--accept"}).out, "pending") >= 4);
  }
  write_file(folder.dir.path() / "base.yaml", "# another comment\n" + kBase);
  CHECK(count(folder.sweep(0, "status").out, "finished") == 2);
}

TEST_CASE("a sweep with wrong trials prints none of them", "[sweep]") {
  const SweepFolder folder(
      "base: base.yaml\n"
      "parameters: {optimizer.lr: [0.1, -1], model.layers: [[8], 8]}\n");
  const Outcome text = folder.sweep(3, "expand");
  CHECK(text.out.empty());
  CHECK(count(text.err, "s.yaml:2:34: error: ") == 1);
  CHECK(count(text.err, "[out-of-range]") == 1);
  CHECK(count(text.err, "[wrong-type]") == 1);
  CHECK(count(text.err, "2 errors") == 1);
  const Outcome json = folder.sweep(3, "expand", {"--diagnostics", "json"});
  CHECK(json.err.empty());
  CHECK(count(json.out, "\n") == 2);
  CHECK(Json::parse(json.out.substr(0, json.out.find('\n'))).at("line") == 2);
}

TEST_CASE("a trial that was killed is lost, and its command continues it to the same end",
          "[sweep]") {
  const std::string sweep =
      "base: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.05}]\n"
      "run: {output_dir: \"out of rates\"}\n";
  const std::string base = kBase.substr(0, kBase.find("train:")) +
                           "train: {steps: 3000, global_batch_size: 32}\n"
                           "optimizer: {type: sgd, lr: 0.1}\n"
                           "checkpoint: {every_steps: 20}\n"
                           "logging: {every_steps: 1, tensorboard: false}\n";
  const SweepFolder folder(sweep, base);
  const fs::path run = folder.trials("status")[0].at("folder").get<std::string>();
  const Arguments train = {"train",
                           (folder.dir.path() / "base.yaml").string(),
                           "--set",
                           "optimizer.lr=0.05",
                           "--output-dir"};
  Arguments killed = train;
  killed.push_back(run.string());
  Program program(killed);
  program.await_stderr("-> checkpoints/step-00000040");
  const Json running = folder.trials("status")[0];
  CHECK(running.at("state") == "running");
  CHECK(running.at("total") == 3000);
  CHECK(running.at("exit").is_null());
  program.send(SIGKILL);
  program.wait();
  CHECK(folder.trials("status")[0].at("state") == "lost");
  const int before = folder.trials("collect")[0].at("step");
  CHECK(before >= 40);
  CHECK(before < 3000);

  REQUIRE(folder.shell("sh COMMANDS") == 0);
  const Json after = folder.trials("collect")[0];
  CHECK(after.at("state") == "finished");
  CHECK(after.at("attempt") == 2);
  Arguments whole = train;
  whole.push_back((folder.dir.path() / "whole").string());
  run_expecting(0, whole);
  require_same_losses(run, folder.dir.path() / "whole", 0);
  CHECK(after.at("loss") == records(folder.dir.path() / "whole").rbegin()->second.at("loss"));
}

TEST_CASE("numbers mean the same to validate, to config and to a sweep", "[sweep]") {
  for (const char* text : {"1e3", "1k", "1_000", "1000.0"}) {
    const SweepFolder folder(
        fmt::format("base: base.yaml\nparameters: {{train.steps: [{}]}}\n", text));
    CHECK(folder.trials("expand")[0].at("overrides").at("train.steps") == 1000);
    const std::string base = (folder.dir.path() / "base.yaml").string();
    const std::string set = fmt::format("train.steps={}", text);
    run_expecting(0, {"validate", base, "--set", set});
    CHECK(count(run_expecting(0, {"config", "show", base, "--set", set}).out, "  steps: 1000\n") ==
          1);
    // and the command line of the trial gives it back
    const std::string commands = folder.sweep(0, "expand", {"--format", "commands"}).out;
    CHECK(count(commands, fmt::format(" --set {} ", set)) == 1);
  }
}

TEST_CASE("hundreds of trials are checked in a moment", "[sweep]") {
  const SweepFolder folder(
      "base: base.yaml\n"
      "method: random\n"
      "samples: 300\n"
      "parameters: {optimizer.lr: {log_uniform: [0.001, 0.3]}}\n");
  const auto start = std::chrono::steady_clock::now();
  CHECK(count(folder.sweep(0, "expand").out, "\tpending\t") == 300);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  CHECK(taken.count() < 10);  // under a second where nothing else runs
}

TEST_CASE("shells complete the commands of a sweep", "[sweep]") {
  const std::string words = run_expecting(0, {"completion", "bash"}).out;
  for (const char* word : {"sweep",
                           "expand",
                           "collect",
                           "--accept",
                           "commands",
                           "--sweep-parallel",
                           "--strict",
                           "--gpu-memory"}) {
    INFO(word);
    CHECK(count(words, word) >= 1);
  }
}

TEST_CASE("sweep says how it is used", "[sweep]") {
  CHECK(count(run_expecting(2, {"sweep"}).err, "[missing-argument]") == 1);
  CHECK(count(run_expecting(2, {"sweep", "expand"}).err, "SWEEP is missing") == 1);
  CHECK(count(run_expecting(2, {"sweep", "expnad", "x"}).err, "did you mean 'expand'?") == 1);
  CHECK(count(run_expecting(2, {"sweep", "status", "x", "--format", "commands"}).err, "[usage]") ==
        1);
  CHECK(count(run_expecting(3, {"sweep", "status", "/none.yaml"}).err, "[file-not-found]") == 1);
  const Json schema = Json::parse(run_expecting(0, {"sweep", "schema"}).out);
  CHECK(schema.at("definitions").contains("optimizer.lr"));
  CHECK_FALSE(schema.at("definitions").contains("run.output_dir"));
}

TEST_CASE("the shipped sweeps expand to what their comments say", "[sweep]") {
  const fs::path sweeps = fs::path(COLOSSAL_SOURCE_DIR) / "configs" / "sweeps";
  const auto expand = [&](const char* name) {
    return run_expecting(0, {"sweep", "expand", (sweeps / name).string()}).out;
  };
  CHECK(count(expand("lr-batch.yaml"), "\n") == 5);  // six but for the one that is excluded
  CHECK(count(expand("random-mlp.yaml"), "\n") == 8);
}
