// Does scripts/sweep.sh run, retry, stop and continue trials, and does its exit code say how they
// ended?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <sys/wait.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A folder with a sweep of a classifier; `trials` are the items of its list.
struct Scripted {
  explicit Scripted(const std::string& trials,
                    const std::string& train = "steps: 30",
                    const std::string& run = "") {
    write_file(dir.path() / "base.yaml",
               "run: {device: cpu, seed: 7, threads: 1}\n"
               "model: {type: mlp, in_features: 4, layers: [8], out_features: 3}\n"
               "data: {type: synthetic, num_samples: 2k}\n"
               "train: {" +
                   train +
                   ", global_batch_size: 32}\n"
                   "optimizer: {type: sgd, lr: 0.1}\n"
                   "checkpoint: {every_steps: 20}\n"
                   "logging: {every_steps: 10, tensorboard: false}\n");
    write_file(file,
               "base: base.yaml\nmethod: list\nrun: {output_dir: out" + run + "}\ntrials: [" +
                   trials + "]\n");
  }
  /// What a shell line ends with; SCRIPT in it is the script with the sweep, OUT the folder of
  /// trials.
  int shell(std::string line) {
    const auto insert = [&](const std::string& word, const std::string& text) {
      for (std::size_t at = line.find(word); at != std::string::npos;
           at = line.find(word, at + text.size())) {
        line.replace(at, word.size(), text);
      }
    };
    insert("SCRIPT", fmt::format("'{}/scripts/sweep.sh' '{}'", COLOSSAL_SOURCE_DIR, file.string()));
    insert("OUT", "'" + (dir.path() / "out").string() + "'");
    const std::string log = (dir.path() / "log").string();
    const std::string all = fmt::format(
        "COLOSSAL_TRAIN='{}' bash -c '{}' > '{}' 2>&1 < /dev/null", program, escaped(line), log);
    const int status = std::system(all.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    output = read_file(log);
    return WEXITSTATUS(status);
  }
  static std::string escaped(const std::string& line) {
    std::string text;
    for (const char c : line) {
      text += c == '\'' ? "'\\''" : std::string(1, c);
    }
    return text;
  }
  [[nodiscard]] std::string states() const {
    std::string text;
    const Outcome found = run_expecting(0, {"sweep", "status", file.string(), "--format", "json"});
    for (const Json& trial : Json::parse(found.out)) {
      text += (text.empty() ? "" : " ") + trial.at("state").get<std::string>();
    }
    return text;
  }

  TempDir dir;
  fs::path file = dir.path() / "s.yaml";
  std::string program = COLOSSAL_BINARY;
  std::string output;
};

// user case 86: the third of six trials does not converge
const std::string kThirdFails =
    "{run.seed: 1}, {run.seed: 2}, {optimizer.lr: 1e9}, {run.seed: 4}, {run.seed: 5}, {run.seed: "
    "6}";

}  // namespace

TEST_CASE("a failing trial stops no other, and the exit code tells of it", "[sweep]") {
  Scripted sweep(kThirdFails);
  CHECK(sweep.shell("SCRIPT --parallel 2") == 1);
  INFO(sweep.output);
  CHECK(sweep.states() == "finished finished failed finished finished finished");
  CHECK(count(sweep.output, "exit 7\n") == 1);
  CHECK(count(sweep.output, "[nonfinite-loss]") == 1);
  CHECK(count(sweep.output, "6 trials: 5 finished, 1 failed\n") == 1);
  // once more: nothing is left to do but what failed, which waits to be asked for
  CHECK(sweep.shell("SCRIPT") == 1);
  CHECK(count(sweep.output, "failed before: --retry-failed runs it again") == 1);
  CHECK(count(sweep.output, "  exit 0\n") == 0);
  CHECK(sweep.shell("SCRIPT --retry-failed") == 1);
  CHECK(count(sweep.output, "  exit 7\n") == 1);
}

TEST_CASE("with on_failure stop no trial starts after one has failed", "[sweep]") {
  const std::string stopped = "finished finished failed pending pending pending";
  Scripted option(kThirdFails);
  CHECK(option.shell("SCRIPT --on-failure stop") == 1);
  INFO(option.output);
  CHECK(option.states() == stopped);
  Scripted key(kThirdFails, "steps: 30", ", on_failure: stop");
  CHECK(key.shell("SCRIPT") == 1);
  CHECK(key.states() == stopped);
  // the option beats the key
  CHECK(key.shell("SCRIPT --on-failure continue") == 1);
  CHECK(key.states() == "finished finished failed finished finished finished");
}

TEST_CASE("a sweep file says how many trials run at a time, and how often they try", "[sweep]") {
  Scripted sweep(
      "{run.seed: 1}, {run.seed: 2}, {run.seed: 3}", "steps: 30", ", parallel: 3, retries: 2");
  const fs::path script = sweep.dir.path() / "colossal-train";
  const std::string tries = (sweep.dir.path() / "tries").string();
  // every training waits for two others, and then has lost its peer
  write_file(script,
             fmt::format("#!/bin/sh\n"
                         "if [ \"$1\" = sweep ]; then '{0}' \"$@\" | sed \"s#[^\t ]*colossal-train "
                         "train#$0 train#\"; exit; fi\n"
                         "echo x >> '{1}'\n"
                         "for i in $(seq 300); do [ $(wc -l < '{1}') -ge 3 ] && exit 8; sleep 0.1; "
                         "done\nexit 7\n",
                         sweep.program,
                         tries));
  fs::permissions(script, fs::perms::owner_all);
  sweep.program = script.string();
  CHECK(sweep.shell("SCRIPT") == 1);
  INFO(sweep.output);
  CHECK(count(read_file(tries), "x\n") == 9);
  CHECK(count(sweep.output, "exit 8, again\n") == 6);
  const Outcome lines =
      run_expecting(0, {"sweep", "expand", sweep.file.string(), "--format", "script"});
  CHECK(lines.out.starts_with("3 2 continue\n0\t"));
  CHECK(count(lines.out, "\n") == 4);
  CHECK(count(lines.out, "\tpending\t") == 3);
  // by its name alone, where it lies
  CHECK(sweep.shell(fmt::format("cd '{}'; '{}/scripts/sweep.sh' s.yaml --dry-run",
                                sweep.dir.path().string(),
                                COLOSSAL_SOURCE_DIR)) == 0);
  CHECK(count(lines.out, " --resume auto\n") == 3);
}

TEST_CASE("a sweep that is told to stop saves its trials, and goes on to its end", "[sweep]") {
  Scripted sweep("{run.seed: 1}, {run.seed: 2}", "steps: 20k");
  const int code = sweep.shell(
      "SCRIPT --parallel 1 & script=$!; "
      "for i in $(seq 600); do ls -d OUT/*/checkpoints/step-* > /dev/null 2>&1 && break; sleep "
      "0.1; done; "
      "kill -TERM $script; wait $script");
  INFO(sweep.output);
  CHECK(code == 75);
  CHECK(count(sweep.output, "exit 75\n") == 1);
  CHECK(sweep.states() == "stopped pending");
  // both are what the same command goes on with
  CHECK(sweep.shell("SCRIPT --parallel 2 --dry-run") == 0);
  CHECK(count(sweep.output, " --resume auto\n") == 2);
}

TEST_CASE("what may pass is tried again, what cannot is not", "[sweep]") {
  Scripted sweep("{run.seed: 1}, {optimizer.lr: 1e9}");
  const fs::path real = sweep.program;
  const fs::path wrapper = sweep.dir.path() / "colossal-train";
  // loses a peer the first two times that it trains
  write_file(wrapper,
             fmt::format("#!/bin/sh\n"
                         "if [ \"$1\" = sweep ]; then '{0}' \"$@\" | sed \"s#[^\t ]*colossal-train "
                         "train#$0 train#\"; exit; fi\n"
                         "echo x >> '{1}'\n"
                         "[ $(wc -l < '{1}') -gt 2 ] || exit 8\n"
                         "exec '{0}' \"$@\"\n",
                         real.string(),
                         (sweep.dir.path() / "tries").string()));
  fs::permissions(wrapper, fs::perms::owner_all);
  sweep.program = wrapper.string();
  CHECK(sweep.shell("SCRIPT --retries 1") == 1);
  INFO(sweep.output);
  CHECK(count(sweep.output, "exit 8, again\n") == 1);
  CHECK(count(sweep.output, "exit 8\n") == 1);
  CHECK(count(sweep.output, "exit 7\n") == 1);
  CHECK(count(sweep.output, "exit 7, again\n") == 0);
  CHECK(sweep.shell("SCRIPT --retries 1") == 1);
  CHECK(sweep.states() == "finished failed");
}

TEST_CASE("the script says what it cannot do before it starts anything", "[sweep]") {
  Scripted sweep("{run.seed: 1}");
  CHECK(sweep.shell("SCRIPT --paralel 2") == 2);
  CHECK(count(sweep.output, "unknown option") == 1);
  CHECK(sweep.shell("SCRIPT --parallel 0") == 2);
  CHECK(sweep.shell("SCRIPT --retries many") == 2);
  CHECK(sweep.shell("SCRIPT another.yaml") == 2);
  CHECK(sweep.shell("SCRIPT --help") == 0);
  CHECK(count(sweep.output, "usage: scripts/sweep.sh") == 1);
  write_file(sweep.file, "base: base.yaml\nmethod: list\ntrials: [{run.sede: 1}]\n");
  CHECK(sweep.shell("SCRIPT") == 3);
  CHECK(count(sweep.output, "[unknown-key]") == 1);
  CHECK_FALSE(fs::exists(sweep.dir.path() / "out"));
}
