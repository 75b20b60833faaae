// Do the commands that read configurations work as a whole: explain, diff, init, show, overlays,
// JSON diagnostics, completion? And is the program quick for them?
#include "e2e/program.hpp"
#include "e2e/shell.hpp"
#include "support/free_port.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <thread>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

const fs::path kConfigs = fs::path(COLOSSAL_SOURCE_DIR) / "configs";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

bool installed(const std::string& program) {
  const std::string command = "command -v " + program + " > /dev/null";
  return std::system(command.c_str()) == 0;  // NOLINT(concurrency-mt-unsafe): one thread
}

/// What bash offers after these words.
std::vector<std::string> bash_offers(const std::string& script,
                                     const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) {
    list += " '" + word + "'";
  }
  return lines_of(shell("bash --norc --noprofile",
                        script + "\nCOMP_WORDS=(" + list +
                            ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
                            "\n_colossal_train\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"));
}

bool offers(const std::vector<std::string>& all, const std::string& word) {
  return std::find(all.begin(), all.end(), word) != all.end();
}

}  // namespace

TEST_CASE("config explain tells what a key means and who set it", "[config]") {
  const Outcome key = run_expecting(0, {"config", "explain", "optimizer.lr"});
  CHECK(count(key.out, "peak learning rate") == 1);
  const Outcome value = run_expecting(
      0,
      {"config", "explain", data_file("tiny.yaml"), "optimizer.lr", "--set", "optimizer.lr=0.5"});
  CHECK(value.out.starts_with("optimizer.lr = 0.5\n"));
  CHECK(count(value.out, "tiny.yaml:") == 1);
  CHECK(value.out.find("tiny.yaml:") < value.out.find("--set#1"));
  const Outcome wrong = run_expecting(2, {"config", "explain", "optimizer.lrr"});
  CHECK(count(wrong.err, "did you mean `optimizer.lr`") == 1);
  CHECK(count(wrong.err, "[unknown-key]") == 1);
  run_expecting(2, {"config", "explain", "a", "b", "c"});
  run_expecting(3, {"config", "explain", "missing.yaml", "optimizer.lr"});
}

TEST_CASE("config diff compares files and run directories by key", "[config]") {
  const TempDir folder;
  const std::string tiny = data_file("tiny.yaml");
  run_expecting(0, train_tiny(folder.path() / "run", {"--set", "optimizer.lr=0.5", "--dry-run"}));
  const fs::path copy = folder.path() / "other.yaml";
  write_file(copy, "extends: " + tiny + "\noptimizer: {lr: 0.25}\nscheduler: null\n");
  const Outcome files = run_expecting(0, {"config", "diff", tiny, copy.string()});
  INFO(files.out);
  CHECK(files.out.starts_with("--- " + tiny + "\n+++ " + copy.string() + "\n"));
  CHECK(count(files.out, "+optimizer.lr: 0.25\n") == 1);
  CHECK(count(files.out, "-optimizer.lr: ") == 1);
  CHECK(count(files.out, "run.output_dir") == 0);
  CHECK(run_expecting(0, {"config", "diff", tiny, tiny}).out.empty());
}

TEST_CASE("config show --origins is a configuration with comments", "[config]") {
  const TempDir folder;
  const Outcome shown = run_expecting(
      0, {"config", "show", data_file("tiny.yaml"), "--origins", "--set", "run.seed=5"});
  CHECK(count(shown.out, "seed: 5  # --set#1\n") == 1);
  write_file(folder.path() / "again.yaml", shown.out);
  run_expecting(0, {"validate", (folder.path() / "again.yaml").string()});
  run_expecting(2, {"config", "show", data_file("tiny.yaml"), "--origins", "--minimal"});
}

TEST_CASE("an overlay counts for validate, plan, config and train", "[config]") {
  const TempDir folder;
  const fs::path over = folder.path() / "over.yaml";
  write_file(over, "train: {steps: 9}\nrun: {name: \"over-${run.seed}\"}\n");
  const Arguments overlay = {"--config-overlay", over.string()};
  const auto with = [&](Arguments words) {
    words.insert(words.end(), overlay.begin(), overlay.end());
    return words;
  };
  const std::string tiny = data_file("tiny.yaml");
  run_expecting(0, with({"validate", tiny}));
  CHECK(count(run_expecting(0, with({"config", "show", tiny})).out, "steps: 9\n") == 1);
  CHECK(count(run_expecting(0, with({"plan", tiny})).out, "over-") >= 1);
  const Outcome trained = run_expecting(0, with(train_tiny(folder.path() / "run")));
  CHECK(last_line(trained).at("step") == 9);
  write_file(over, "train: {setps: 9}\n");
  for (const Arguments& words : {Arguments{"validate", tiny}, Arguments{"train", tiny}}) {
    const Outcome wrong = run_expecting(3, with(words));
    CHECK(count(wrong.out + wrong.err, "over.yaml:1:9: error") == 1);
  }
}

TEST_CASE("diagnostics come as JSON lines on stdout where asked for", "[config]") {
  const TempDir folder;
  const fs::path bad = folder.path() / "bad.yaml";
  write_file(bad, read_file(data_file("tiny.yaml")) + "lr: 1\nfoo: 2\n");
  for (const Arguments& command : {Arguments{"validate"},
                                   Arguments{"plan"},
                                   Arguments{"train"},
                                   Arguments{"train", "--nproc", "2"}}) {
    Arguments words = command;
    words.insert(words.end(), {bad.string(), "--diagnostics", "json"});
    const Outcome outcome = run_expecting(3, words);
    const std::vector<std::string> lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 2);
    const Json first = Json::parse(lines[0]);
    CHECK(first.at("id") == "unknown-key");
    CHECK(first.at("file") == bad.string());
    CHECK(first.at("column") == 1);
    CHECK(outcome.err.find("unknown-key") == std::string::npos);
  }
  CHECK(
      run_expecting(0, {"validate", data_file("tiny.yaml"), "--diagnostics", "json"}).out.empty());
}

TEST_CASE("the start time is one for all ranks, and secrets stay out of the run directory",
          "[config]") {
  const TempDir folder;
  const Setting secret{.environment = {{"COLOSSAL_TEST_TOKEN", "hunter2-x"}}};
  const fs::path config = folder.path() / "timed.yaml";
  write_file(config,
             "extends: " + data_file("tiny.yaml") + "\ntrain: {steps: 9}\n" +
                 "run:\n  name: t-${run.time}-${env:COLOSSAL_TEST_TOKEN}\n  output_dir: " +
                 (folder.path() / "runs").string() + "/at-${run.time}\n");
  run_expecting(0, {"train", config.string(), "--nproc", "2"}, secret);
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(folder.path() / "runs")) {
    runs.push_back(entry.path());
  }
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].filename().string().size() == std::string("at-20261128-041500").size());
  const std::string resolved = read_file(runs[0] / "config.resolved.yaml");
  CHECK(count(resolved, "-${env:COLOSSAL_TEST_TOKEN}\"") == 1);
  for (const char* file : {"config.resolved.yaml", "plan.json", "env.json"}) {
    INFO(file);
    CHECK(count(read_file(runs[0] / file), "hunter2") == 0);
  }
  const std::string again = (runs[0] / "config.resolved.yaml").string();
  run_expecting(0, {"validate", again}, secret);
  CHECK(count(run_expecting(3, {"validate", again}).out, "[interp-env]") == 1);
}

TEST_CASE("ranks of another launcher agree on the start time", "[config]") {
  const TempDir folder;
  const fs::path config = folder.path() / "timed.yaml";
  write_file(config,
             "extends: " + data_file("tiny.yaml") + "\ntrain: {steps: 9}\nrun:\n  output_dir: " +
                 (folder.path() / "runs").string() + "/${run.time}\n");
  const int port = free_port();
  Program first({"train", config.string()}, torchrun_rank(0, 2, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // another second on the clock
  Program second({"train", config.string()}, torchrun_rank(1, 2, port));
  CHECK(first.wait().code == 0);
  CHECK(second.wait().code == 0);
  std::vector<std::string> runs;
  for (const auto& entry : fs::directory_iterator(folder.path() / "runs")) {
    runs.push_back(entry.path().filename().string());
  }
  REQUIRE(runs.size() == 1);
  CHECK_FALSE(runs[0].starts_with("0000"));
  CHECK(records(folder.path() / "runs" / runs[0]).size() >= 1);
}

TEST_CASE("ranks with different configurations say which keys differ", "[config]") {
  const TempDir folder;
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Setting setting = torchrun_rank(rank, 2, port);
    setting.environment["COLOSSAL_TEST_TOKEN"] = "hunter2-x";
    ranks.push_back(std::make_unique<Program>(
        train_tiny(folder.path(),
                   {"--set",
                    "optimizer.lr=0.0" + std::to_string(rank + 1),
                    "--set",
                    "run.name=n" + std::to_string(rank) + "-${env:COLOSSAL_TEST_TOKEN}"}),
        setting));
  }
  std::string told;
  for (const auto& rank : ranks) {
    const Outcome outcome = rank->wait();
    CHECK(outcome.code == 3);
    told += outcome.err;
  }
  INFO(told);
  CHECK(count(told, "[config-differs]") == 1);
  CHECK(count(told, "\n  key   optimizer.lr = 0.02 on rank 1, 0.01 on rank 0\n") == 1);
  CHECK(count(told, "run.name = \"n1-${env:COLOSSAL_TEST_TOKEN}\" on rank 1") == 1);
  CHECK(count(told, "hunter2") == 0);
}

TEST_CASE("C1 row 4: a run directory's resolved file validates and trains", "[config]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "a", {"--set", "train.steps=9"}));
  const std::string resolved = (folder.path() / "a" / "config.resolved.yaml").string();
  run_expecting(0, {"validate", resolved});
  // values and, as comments, where the first one that wrote them did
  CHECK(run_expecting(0, {"config", "show", "--origins", resolved}).out == read_file(resolved));
  CHECK(count(read_file(resolved), "  steps: 9  # --set#1\n") == 1);
  CHECK(count(read_file(resolved), "  lr: 0.01  # " + data_file("tiny.yaml") + ":7:30\n") == 1);
  run_expecting(0, {"train", resolved, "--output-dir", (folder.path() / "b").string()});
  std::string moved = read_file(folder.path() / "b" / "config.resolved.yaml");
  const std::string there =
      "  output_dir: " + (folder.path() / "b").string() + "  # --output-dir\n";
  REQUIRE(count(moved, there) == 1);
  moved.replace(moved.find(there),
                there.size(),
                "  output_dir: " + (folder.path() / "a").string() + "  # --output-dir\n");
  const auto values = [](const std::string& text) { return text.substr(text.find('\n')); };
  CHECK(values(moved) == values(read_file(resolved)));
  // in its own folder it goes on, and writes the same bytes
  const std::string before = read_file(resolved);
  fs::remove_all(folder.path() / "a" / "checkpoints");
  run_expecting(0, {"train", resolved});
  CHECK(read_file(resolved) == before);
}

TEST_CASE("C1 row 23: what is wrong never ends with 0", "[config]") {
  const TempDir folder;
  const fs::path bad = folder.path() / "bad.yaml";
  write_file(bad, "version: one\n");
  run_expecting(3, {"validate", "missing.yaml"});
  run_expecting(3, {"validate", bad.string()});
  run_expecting(3, {"validate", bad.string(), data_file("tiny.yaml")});
  run_expecting(2, {"validate", "--wrold-size", "2", bad.string()});
  run_expecting(3, {"config", "show", bad.string()});
  run_expecting(3, {"config", "diff", bad.string(), bad.string()});
}

TEST_CASE("bash completes commands, options, words, keys and files", "[completion]") {
  const std::string script = run_expecting(0, {"completion", "bash"}).out;
  CHECK(offers(bash_offers(script, {"colossal-train", ""}), "validate"));
  CHECK(offers(bash_offers(script, {"colossal-train", "co"}), "completion"));
  CHECK_FALSE(offers(bash_offers(script, {"colossal-train", "co"}), "train"));
  CHECK(offers(bash_offers(script, {"colossal-train", "config", ""}), "explain"));
  CHECK(offers(bash_offers(script, {"colossal-train", "train", "--n"}), "--nproc"));
  CHECK(bash_offers(script, {"colossal-train", "train", "--nproc", ""}) ==
        std::vector<std::string>{"auto"});
  CHECK(offers(bash_offers(script, {"colossal-train", "plan", "x.yaml", "--format", "j"}), "json"));
  CHECK(offers(bash_offers(script, {"colossal-train", "--co"}), "--color"));
  CHECK(offers(bash_offers(script, {"colossal-train", "train", "x", "--co"}), "--color"));
  CHECK(offers(bash_offers(script, {"colossal-train", "config", "show", "--qu"}), "--quiet"));
  CHECK(bash_offers(script, {"colossal-train", "eval", "--color", "n"}) ==
        std::vector<std::string>{"never"});
  CHECK(bash_offers(script, {"colossal-train", "--color", "a"}) ==
        std::vector<std::string>{"auto", "always"});
  CHECK(bash_offers(script, {"colossal-train", "train", "x", "--set", "optimizer.bet"}) ==
        std::vector<std::string>{"optimizer.betas="});
  CHECK(
      bash_offers(script, {"colossal-train", "train", "x", "--set", "scheduler.type", "=", "co"}) ==
      std::vector<std::string>{"constant", "cosine"});
  CHECK(offers(bash_offers(script, {"colossal-train", "config", "explain", "optimizer.b"}),
               "optimizer.betas"));
  CHECK(offers(bash_offers(script, {"colossal-train", "config", "init", "tiny"}), "tiny-cpu"));
  CHECK(offers(bash_offers(script, {"colossal-train", "validate", kConfigs.string() + "/tiny-c"}),
               (kConfigs / "tiny-cpu.yaml").string()));
  CHECK(offers(bash_offers(script, {"colossal-train", "completion", "z"}), "zsh"));
}

TEST_CASE("zsh completes what is typed in a real terminal", "[completion]") {
  const std::string script = run_expecting(0, {"completion", "zsh"}).out;
  CHECK(script.starts_with("#compdef colossal-train\n"));
  if (!installed("zsh")) {
    WARN("zsh is not installed: its completion is not tried");
    return;
  }
  const TempDir folder;
  write_file(folder.path() / "_colossal-train", script);
  write_file(folder.path() / "a-file.yaml", "");
  const auto typed = [&](const std::string& keys) {
    return shell("timeout 60 zsh -f",
                 "zmodload zsh/zpty\n"
                 "zpty shell zsh -f -i\n"
                 "zpty -w shell \"cd " +
                     folder.path().string() +
                     "; autoload -U compinit; compinit -D -u; source ./_colossal-train; "
                     "colossal-train() { print -r -- \\\"go\\\"\\\"t <\\$*>\\\" }\"\n"
                     "zpty -w -n shell $'colossal-train " +
                     keys +
                     "\\n'\n"
                     "zpty -r -m shell line '*got <*>*' && print -r -- \"${line##*got }\"\n");
  };
  CHECK(typed("val\\t").starts_with("<validate>"));
  CHECK(typed("validate --wor\\t3").starts_with("<validate --world-size 3>"));
  CHECK(typed("config expl\\tx").starts_with("<config explain x>"));
  CHECK(typed("train x --set optimizer.bet\\t0").starts_with("<train x --set optimizer.betas=0>"));
  CHECK(typed("plan x --format j\\t").starts_with("<plan x --format json>"));
  CHECK(typed("validate a-f\\t").starts_with("<validate a-file.yaml>"));
  CHECK(
      typed("validate zzz\\t").starts_with("<validate zzz>"));  // offers nothing that is not there
}

TEST_CASE("fish completes commands, options, words, keys and files", "[completion]") {
  const std::string script = run_expecting(0, {"completion", "fish"}).out;
  CHECK(count(script, "-n \"__colossal_train_command 'train'\" -l nproc -r -f -a 'auto'") == 1);
  if (!installed("fish")) {
    WARN("fish is not installed: its completion is not tried");
    return;
  }
  const auto fish_offers = [&](const std::string& words) {
    std::vector<std::string> offered;
    for (const std::string& line : lines_of(shell(
             "fish --no-config", script + "\ncomplete -C 'colossal-train " + words + "'\n"))) {
      offered.push_back(line.substr(0, line.find('\t')));
    }
    return offered;
  };
  using Words = std::vector<std::string>;
  CHECK(fish_offers("val") == Words{"validate"});
  CHECK(fish_offers("config ") == Words{"diff", "explain", "init", "schema", "show"});
  CHECK(fish_offers("train --npr") == Words{"--nproc"});
  CHECK(fish_offers("train --nproc ") == Words{"auto"});
  CHECK(fish_offers("plan x.yaml --format j") == Words{"json"});
  CHECK(fish_offers("train x --set optimizer.bet") == Words{"optimizer.betas"});
  CHECK(fish_offers("config explain optimizer.bet") == Words{"optimizer.betas"});
  CHECK(offers(fish_offers("config init tiny"), "tiny-cpu"));
  const std::string file = (kConfigs / "tiny-cpu.yaml").string();
  CHECK(fish_offers("validate " + file.substr(0, file.size() - 3)) == Words{file});
  CHECK(fish_offers("completion z") == Words{"zsh"});
}

TEST_CASE("completion knows three shells", "[completion]") {
  const Outcome other = run_expecting(2, {"completion", "tcsh"});
  CHECK(count(other.err, "fish") >= 1);
}

TEST_CASE("a program without its engine says what is missing", "[config]") {
  const TempDir folder;
  const std::string alone = (folder.path() / "colossal-train").string();
  fs::copy_file(COLOSSAL_BINARY, alone);
  const std::string said = shell("sh",
                                 alone + " train x.yaml\n[ $? = 9 ] || exit 1\n" + alone +
                                     " validate " + data_file("tiny.yaml") + "\n");
  CHECK(count(said, "[engine-missing]") == 1);
  CHECK(count(said, "tiny.yaml: ok") == 1);
}

TEST_CASE("validate does not load LibTorch and needs little time", "[config]") {
  const std::string libraries = shell("sh", std::string("ldd ") + COLOSSAL_BINARY + "\n");
  CHECK(count(libraries, "torch") == 0);
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_CHILDREN, &before);
  constexpr int kRuns = 10;
  for (int i = 0; i < kRuns; ++i) {
    run_expecting(0, {"validate", (kConfigs / "tiny-cpu.yaml").string()});
  }
  getrusage(RUSAGE_CHILDREN, &after);
  const auto seconds = [](const rusage& usage) {
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  CHECK((seconds(after) - seconds(before)) / kRuns < 0.05);  // computing time: waiting is not ours
}
