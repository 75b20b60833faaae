// Is what the run directories of a sweep hold told as it is, damaged ones included?
#include "train/sweep_runs.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A sweep of four trials whose folders a test fills.
struct Folders {
  Folders() {
    sweep.name = "s";
    sweep.output_dir = (dir.path() / "out").string();
    for (const char* lr : {"0.1", "0.2", "0.3", "0.4"}) {
      SweepTrial& trial = sweep.trials.emplace_back();
      trial.index = std::ssize(sweep.trials) - 1;
      trial.id = fmt::format("{:08x}", 0xabc0 + trial.index);
      trial.overrides = fmt::format(R"({{"optimizer.lr":{},"model.layers":[1,2]}})", lr);
      trial.sets = {{"optimizer.lr", lr, {}}, {"model.layers", "[1, 2]", {}}};
    }
  }
  /// The folder of a trial, made if it is not there.
  [[nodiscard]] fs::path folder(std::size_t index) const {
    fs::path path = fs::path(sweep.output_dir) / sweep.trials.at(index).name();
    fs::create_directories(path);
    return path;
  }
  void write(std::size_t index, const char* file, const std::string& text) const {
    std::ofstream(folder(index) / file) << text;
  }
  void status(std::size_t index, const Json& changes = Json::object()) const {
    Json json = {{"state", "finished"},
                 {"step", 30},
                 {"total", 50},
                 {"attempt", 2},
                 {"pid", ::getpid()},
                 {"host", host_name()},
                 {"exit", 0}};
    json.update(changes);
    write(index, "status.json", json.dump());
  }

  TempDir dir;
  Sweep sweep;
};

/// The number of a process that has just ended.
pid_t ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  return pid;
}

}  // namespace

TEST_CASE("states are those of status.json; a run whose process is gone is lost", "[sweep_runs]") {
  const Folders f;
  f.status(0, {{"state", "running"}, {"exit", nullptr}});
  f.status(1, {{"state", "running"}, {"pid", ended_process()}});
  f.status(2, {{"state", "running"}, {"pid", ended_process()}, {"host", "another"}});
  const std::vector<TrialRun> runs = trial_runs(f.sweep);
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].state == "running");
  CHECK(runs[0].step == 30);
  CHECK(runs[0].total == 50);
  CHECK(runs[0].attempt == 2);
  CHECK_FALSE(runs[0].exit_code.has_value());
  CHECK(runs[1].state == "lost");
  CHECK(runs[2].state == "running");  // nobody here can tell
  CHECK(runs[3].state == "pending");
  CHECK(runs[3].folder == fs::path(f.sweep.output_dir) / f.sweep.trials[3].name());
  CHECK(count_states(runs) == "4 trials: 2 running, 1 lost, 1 pending");
}

TEST_CASE("a folder without a status, with half of one or with anything else is told as it is",
          "[sweep_runs]") {
  const Folders f;
  (void)f.folder(0);
  f.write(1, "status.json", "{\"state\": \"runn");
  f.write(2, "status.json", "[1, 2]");
  f.status(3, {{"state", 7}, {"step", "x"}});
  const std::vector<TrialRun> runs = trial_runs(f.sweep);
  CHECK(runs[0].state == "pending");
  CHECK(runs[1].state == "unknown");
  CHECK(runs[2].state == "unknown");
  CHECK(runs[3].state == "unknown");
  CHECK(count_states({runs[1]}) == "1 trial: 1 unknown");
}

TEST_CASE("the last record of each kind and step counts, partial lines do not", "[sweep_runs]") {
  const Folders f;
  f.status(0);
  f.write(0,
          "metrics.jsonl",
          R"({"t":100,"attempt":1,"kind":"train","step":1,"loss":9}
{"t":110,"attempt":1,"kind":"train","step":20,"loss":3}
{"t":111,"attempt":1,"kind":"eval","step":20,"loss":2.5,"accuracy":0.5}
{"t":200,"attempt":2,"kind":"resume","step":10}
{"t":205,"attempt":2,"kind":"train","step":20,"loss":4}
{"t":206,"attempt":2,"kind":"eval","step":20,"loss":2.25,"accuracy":0.75}
{"t":208,"attempt":2,"kind":"eval","step":30,"loss":2.75,"accuracy":0.625}
{"t":209,"attempt":2,"kind":"train","step":30,"loss":null}
{"t":210,"attempt":2,"kind":"tra)");
  const TrialRun run = trial_runs(f.sweep).at(0);
  CHECK_FALSE(run.loss.has_value());  // not finite: null
  CHECK(run.eval_loss == 2.75);
  CHECK(run.best_eval_loss == 2.25);
  CHECK(run.accuracy == 0.625);
  CHECK(run.seconds == 11 + 9);
}

TEST_CASE("a trial keeps the folder that it ran in when its index has changed", "[sweep_runs]") {
  Folders f;
  f.status(1);
  const fs::path ran = f.folder(1);
  std::swap(f.sweep.trials[1], f.sweep.trials[3]);
  f.sweep.trials[1].index = 1;
  f.sweep.trials[3].index = 3;
  const std::vector<TrialRun> runs = trial_runs(f.sweep);
  CHECK(runs[3].folder == ran);
  CHECK(runs[3].state == "finished");
  CHECK(runs[1].state == "pending");
  CHECK(left_over(f.sweep).empty());
}

TEST_CASE("folders of other trials are left over; other folders are not meant", "[sweep_runs]") {
  Folders f;
  CHECK(left_over(f.sweep).empty());  // the folder is not there yet
  (void)f.folder(2);
  for (const char* name : {"0009-0123abcd",
                           "0002-fedc0000",
                           "notes",
                           "0001-xyz",
                           "12-0123abcd",
                           "0001-0123abcde",
                           "0001-0123ABCD"}) {
    fs::create_directories(fs::path(f.sweep.output_dir) / name);
  }
  std::ofstream(fs::path(f.sweep.output_dir) / "0003-0123abce") << "a file";
  const std::vector<fs::path> left = left_over(f.sweep);
  REQUIRE(left.size() == 2);
  CHECK(left[0].filename() == "0002-fedc0000");
  CHECK(left[1].filename() == "0009-0123abcd");
}

TEST_CASE("tables have a column for each swept key and each metric that any trial has",
          "[sweep_runs]") {
  const Folders f;
  f.status(0, {{"exit", 7}, {"state", "failed"}});
  f.write(
      0, "metrics.jsonl", "{\"t\":1,\"attempt\":1,\"kind\":\"train\",\"step\":1,\"loss\":0.1}\n");
  std::vector<TrialRun> runs = trial_runs(f.sweep);
  runs[1].trial.overrides = R"({"optimizer.lr":"${vars.a}"})";
  const std::vector<TableRow> rows = result_rows(runs, true);
  CHECK(rows[0] == TableRow{"trial",
                            "state",
                            "model.layers",
                            "optimizer.lr",
                            "loss",
                            "step",
                            "seconds",
                            "exit",
                            "folder"});
  CHECK(rows[1] == TableRow{"0000-0000abc0",
                            "failed",
                            "[1,2]",
                            "0.1",
                            "0.1",
                            "30",
                            "0.0",
                            "7",
                            runs[0].folder.string()});
  CHECK(rows[2] == TableRow{"0001-0000abc1",
                            "pending",
                            "-",
                            "${vars.a}",
                            "",
                            "0",
                            "0.0",
                            "",
                            runs[1].folder.string()});
  CHECK(result_rows(runs, false)[1][4] == "0.1000");
  CHECK(result_rows(runs, false)[2][4] == "-");
  CHECK(status_rows(runs)[1] ==
        TableRow{"0000-0000abc0", "failed", "30/50", "2", "7", "[1,2]", "0.1"});
  CHECK(status_rows(runs)[3] ==
        TableRow{"0002-0000abc2", "pending", "-", "-", "-", "[1,2]", "0.3"});
}

TEST_CASE("the JSON of a sweep holds numbers as numbers", "[sweep_runs]") {
  const Folders f;
  f.status(1);
  const Json list = Json::parse(to_json(trial_runs(f.sweep)));
  REQUIRE(list.size() == 4);
  CHECK(list[1]["state"] == "finished");
  CHECK(list[1]["exit"] == 0);
  CHECK(list[1]["overrides"]["optimizer.lr"] == 0.2);
  CHECK(list[0]["exit"].is_null());
  CHECK(list[0]["loss"].is_null());
  CHECK(list[3]["id"] == "0000abc3");
}

}  // namespace colossal::test
