// Does a run that is asked to stop save first, and go on later as if nothing had happened?
#include "e2e/program.hpp"
#include "e2e/shell.hpp"
#include "support/free_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <signal.h>
#include <string>
#include <thread>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

constexpr int kStopped = 75;
constexpr const char* kTold = "signal    SIG";

/// The step that `latest` names.
int latest(const fs::path& run_dir) {
  return std::stoi(read_file(run_dir / "checkpoints" / "latest"));
}

/// A constant rate, so that runs of different lengths have equal steps; long enough to be stopped.
Arguments train_long(const fs::path& folder, const Arguments& more = {}) {
  Arguments all = {"--set", "scheduler={type: constant}", "--set", "logging.every_steps=1"};
  all.insert(all.end(), more.begin(), more.end());
  return train_endless(folder, all);
}

/// Exit code 75, a complete checkpoint of the last step, and files that say so.
void require_stopped(const fs::path& run_dir, const Outcome& outcome, const std::string& reason) {
  INFO(outcome.err);
  REQUIRE(outcome.code == kStopped);
  const Json status = status_of(run_dir);
  CHECK(status.at("state") == "stopped");
  CHECK(status.at("exit") == kStopped);
  CHECK_FALSE(fs::exists(run_dir / "abort.json"));
  const int step = latest(run_dir);
  CHECK(status.at("step") == step);
  run_expecting(0, {"inspect", checkpoint(run_dir, step).string(), "--verify"});
  const Json summary = last_line(outcome);
  CHECK(summary.at("reason") == reason);
  CHECK(summary.at("step") == step);
  CHECK(summary.at("checkpoint") == checkpoint(run_dir, step).string());
  CHECK(records(run_dir).rbegin()->first == step);
  for (const std::string& name : stored(run_dir, "")) {
    CHECK(name.find(".tmp") == std::string::npos);
  }
}

/// `run_dir` stopped somewhere; continued for three more steps it equals a run that never stopped.
void require_continues(const fs::path& run_dir, const Arguments& more) {
  const int end = latest(run_dir) + 3;
  Arguments arguments = more;
  arguments.insert(arguments.end(), {"--set", fmt::format("train.steps={}", end)});
  const fs::path whole = run_dir.string() + "-whole";
  run_expecting(0, train_long(run_dir, arguments));
  run_expecting(0, train_long(whole, arguments));
  require_same_losses(whole, run_dir, 0);
  require_same_tensors(checkpoint(whole, end), checkpoint(run_dir, end));
}

}  // namespace

TEST_CASE("SIGTERM saves and stops, and the run goes on bit for bit", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    const Arguments more = {"--nproc", processes};
    Program program(train_long(run_dir, more));
    program.await_stderr("step  3/");
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    require_stopped(run_dir, outcome, "stopped by SIGTERM");
    CHECK(count(outcome.err, kTold) == 1);
    CHECK(count(outcome.err, "end       stopped by SIGTERM at step ") == 1);
    CHECK(count(outcome.err, "the same command continues this run") == 1);
    require_continues(run_dir, more);
    CHECK(records(run_dir, "resume").size() == 1);
  }
}

TEST_CASE("each stop signal does what its key says", "[stop]") {
  const TempDir folder;
  struct Row {
    const char* name;
    int signal;
    Arguments more;
    int code;
  };
  const Arguments cadence = {"--set", "checkpoint.every_steps=100k"};
  const std::vector<Row> rows = {
      {"usr1", SIGUSR1, {}, kStopped},
      {"hup", SIGHUP, {}, kStopped},
      {"int", SIGINT, cadence, kStopped},
      {"int-none", SIGINT, {}, 128 + SIGINT},  // who has no cadence loses nothing by it
      {"term-off", SIGTERM, {"--set", "run.stop_signals=[SIGUSR1]"}, 128 + SIGTERM},
      {"usr1-off", SIGUSR1, {"--set", "run.stop_signals=[]"}, 128 + SIGUSR1},
      {"int-empty", SIGINT, {"--set", "run.stop_signals=[]", cadence[0], cadence[1]}, kStopped}};
  for (const char* processes : {"1", "2"}) {
    for (const Row& row : rows) {
      INFO(row.name << " on " << processes);
      const fs::path run_dir = folder.path() / (row.name + std::string(processes));
      Arguments more = {"--nproc", processes};
      more.insert(more.end(), row.more.begin(), row.more.end());
      Program program(train_long(run_dir, more));
      program.await_stderr("step  2/");
      program.send(row.signal);
      const Outcome outcome = program.wait();
      INFO(outcome.err);
      CHECK(outcome.code == row.code);
      CHECK(status_of(run_dir).at("exit") == row.code);
      CHECK(status_of(run_dir).at("state") == (row.code == kStopped ? "stopped" : "interrupted"));
      CHECK(fs::exists(run_dir / "checkpoints" / "latest") == (row.code == kStopped));
    }
  }
}

TEST_CASE("a signal to one rank stops all at the same step", "[stop]") {
  const TempDir folder;
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}}) {
    const fs::path run_dir = folder.path() / std::to_string(victim);
    Program program(train_long(run_dir, {"--nproc", "3", "--set", "train.global_batch_size=9"}));
    program.await_stderr("step  2/");
    const std::vector<pid_t> ranks = program.children();
    REQUIRE(ranks.size() == 3);
    ::kill(ranks[victim], SIGTERM);
    const Outcome outcome = program.wait();
    const bool by_rank_0 = last_line(outcome).at("reason") == "stopped by SIGTERM";
    require_stopped(
        run_dir, outcome, by_rank_0 ? "stopped by SIGTERM" : "stopped by a signal to another rank");
  }
}

TEST_CASE("ranks of torchrun stop together", "[stop]") {
  const TempDir folder;
  const int port = free_port();
  Program first(train_long(folder.path()), torchrun_rank(0, 2, port));
  Program second(train_long(folder.path()), torchrun_rank(1, 2, port));
  first.await_stderr("step  2/");
  second.send(SIGTERM);
  CHECK(second.wait().code == kStopped);
  require_stopped(folder.path(), first.wait(), "stopped by a signal to another rank");
}

TEST_CASE("a batch system that signals the launcher and its ranks asks once", "[stop]") {
  const TempDir folder;
  Program program(train_long(folder.path(), {"--nproc", "2"}),
                  with_fault("rank=0,step=3,kind=sleep:3"));
  program.await_stderr("step  2/");
  const std::vector<pid_t> ranks = program.children();
  REQUIRE(ranks.size() == 2);
  for (const pid_t rank : ranks) {
    ::kill(rank, SIGTERM);
  }
  program.await_stderr(kTold);
  program.send(SIGTERM);
  require_stopped(folder.path(), program.wait(), "stopped by SIGTERM");
}

TEST_CASE("torchrun and a batch system that both pass a signal on ended the run at once",
          "[stop]") {
  const TempDir folder;
  const int port = free_port();
  const std::string fault = "rank=0,step=3,kind=sleep:3";
  Program first(train_long(folder.path()), with_fault(fault, torchrun_rank(0, 2, port)));
  Program second(train_long(folder.path()), with_fault(fault, torchrun_rank(1, 2, port)));
  first.await_stderr("step  2/");
  first.send(SIGTERM);  // as their parent does
  first.await_stderr(kTold);
  shell("sh", fmt::format("kill -TERM {}", first.pid()));
  require_stopped(folder.path(), first.wait(), "stopped by SIGTERM");
  CHECK(second.wait().code == kStopped);
}

TEST_CASE("a second signal ends the run at once", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    for (const int second : {SIGINT, SIGTERM}) {
      INFO(processes << " processes, signal " << second);
      const fs::path run_dir = folder.path() / fmt::format("{}-{}", processes, second);
      Program program(train_long(run_dir, {"--nproc", processes}),
                      with_fault("rank=0,step=3,kind=sleep:300"));
      program.await_stderr("step  2/");
      program.send(SIGTERM);
      program.await_stderr(kTold);
      program.send(SIGUSR1);  // no more than the first one, and no reason to hurry
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      CHECK_FALSE(program.has_ended());
      program.send(second);
      const Outcome outcome = program.wait();
      INFO(outcome.err);
      CHECK(outcome.code == 128 + second);
      CHECK(status_of(run_dir).at("state") == "interrupted");
      CHECK_FALSE(fs::exists(run_dir / "checkpoints" / "latest"));
    }
  }
}

TEST_CASE("the loop wrote 'running' over the end of a run that a signal ended", "[stop]") {
  const TempDir folder;
  for (int round = 0; round < 12; ++round) {
    const fs::path run_dir = folder.path() / std::to_string(round);
    Program program(train_long(run_dir));
    program.await_stderr(fmt::format("step  {}/", 3 + round));
    program.send(SIGINT);
    CHECK(program.wait().code == 128 + SIGINT);
    CHECK(status_of(run_dir).at("state") == "interrupted");
    CHECK(status_of(run_dir).at("exit") == 128 + SIGINT);
  }
}

TEST_CASE("SIGUSR2 saves and the run goes on", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    Program program(train_long(run_dir, {"--nproc", processes}));
    program.await_stderr("step  2/");
    program.send(SIGUSR2);
    program.await_stderr("-> checkpoints/step-");
    const int saved = latest(run_dir);
    program.await_stderr(fmt::format("step  {}/", saved + 2));
    CHECK(status_of(run_dir).at("state") == "running");
    program.send(SIGUSR2);
    program.await_stderr("step  ");
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    require_stopped(run_dir, outcome, "stopped by SIGTERM");
    CHECK(latest(run_dir) > saved);
    run_expecting(0, {"inspect", checkpoint(run_dir, latest(run_dir)).string(), "--verify"});
    CHECK(count(outcome.err, "ckpt  step ") >= 2);
  }
}

TEST_CASE("run.max_time ends a run while it can still save", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    const Arguments more = {"--nproc", processes, "--set", "run.max_time=6s"};
    const Outcome outcome = run(train_long(run_dir, more));
    require_stopped(run_dir, outcome, "stopped by run.max_time");
    CHECK(count(outcome.err, kTold) == 0);
    CHECK(last_line(outcome).at("seconds").get<double>() > 2);
    CHECK(last_line(outcome).at("seconds").get<double>() <= 6);  // its only save included
    require_continues(run_dir, {"--nproc", processes});
  }
}

TEST_CASE("a time that is over before the first step still gives one", "[stop]") {
  const TempDir folder;
  for (int start = 1; start <= 2; ++start) {
    const Outcome outcome = run(train_long(folder.path(), {"--set", "run.max_time=0.01s"}));
    require_stopped(folder.path(), outcome, "stopped by run.max_time");
    CHECK(latest(folder.path()) == start);
  }
}

TEST_CASE("a run that ends by its last step is finished, whatever was asked", "[stop]") {
  const TempDir folder;
  const Arguments last = {"--set", "run.max_time=0.01s", "--set", "train.steps=1"};
  const Outcome outcome = run_expecting(0, train_long(folder.path(), last));
  CHECK(last_line(outcome).at("reason") == "finished");
  CHECK(status_of(folder.path()).at("state") == "finished");
}

TEST_CASE("a signal during an evaluation stops the run after the next step", "[stop]") {
  const TempDir folder;
  const Arguments more = {"--set", "eval.every_steps=1", "--set", "eval.at_start=true"};
  Program program(train_long(folder.path(), more));
  program.await_stderr("eval  step 2 ");
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  require_stopped(folder.path(), outcome, "stopped by SIGTERM");
  const int end = latest(folder.path());
  const std::map<int, Json> evaluations = records(folder.path(), "eval");
  CHECK(evaluations.rbegin()->first == end - 1);  // the checkpoint comes first
}

TEST_CASE("a signal before the first step is kept until a step has been done", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    for (const int delay : {30, 120, 400}) {
      INFO(processes << " processes, " << delay << " ms");
      const fs::path run_dir = folder.path() / fmt::format("{}-{}", processes, delay);
      Program program(train_long(run_dir, {"--nproc", processes}));
      program.await_held_signals();
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      program.send(SIGTERM);
      require_stopped(run_dir, program.wait(), "stopped by SIGTERM");
    }
  }
}

TEST_CASE("nohup: a hang-up that is ignored at the start stays ignored", "[stop]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    Setting nohup;
    nohup.ignored = {SIGHUP};
    Program program(train_long(folder.path() / processes, {"--nproc", processes}), nohup);
    program.await_stderr("step  2/");
    program.send(SIGHUP);
    for (const pid_t rank : program.children()) {
      ::kill(rank, SIGHUP);
    }
    program.await_stderr("step  40/");
    CHECK_FALSE(program.has_ended());
    program.send(SIGTERM);
    const Outcome outcome = program.wait();
    CHECK(outcome.code == kStopped);
    CHECK(count(outcome.err, "SIGHUP") == 0);
  }
}

TEST_CASE("a dry run has nothing to save", "[stop]") {
  const TempDir folder;
  Program program(
      train_long(folder.path(), {"--dry-run", "--set", "parallel.comm.init_timeout=60s"}),
      torchrun_rank(0, 2, free_port()));  // waits for a rank that never comes
  std::this_thread::sleep_for(std::chrono::seconds(2));
  program.send(SIGTERM);
  CHECK(program.wait().code == 128 + SIGTERM);
}

TEST_CASE("a checkpoint that cannot be written is no reason to say 75", "[stop]") {
  const TempDir folder;
  Program program(train_long(folder.path()), with_fault("rank=0,step=0,kind=write-error:100"));
  program.await_stderr("step  2/");
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  INFO(outcome.err);
  CHECK(outcome.code == 5);
  CHECK(count(outcome.err, "[checkpoint-write]") == 1);
  CHECK(status_of(folder.path()).at("state") == "failed");
}

TEST_CASE("a run that is stopped again and again ends as one that never was", "[stop]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Arguments more = {"--nproc", "2"};
  int last = 0;
  for (int start = 0; start < 4; ++start) {
    Program program(train_long(run_dir, more));
    program.await_stderr(fmt::format("step  {}/", last + 2 + start));
    program.send(start % 2 == 0 ? SIGTERM : SIGUSR1);
    REQUIRE(program.wait().code == kStopped);
    CHECK(latest(run_dir) > last);
    last = latest(run_dir);
    CHECK(stored(run_dir, "").size() <= 4);  // keep_last 3, and `latest`
  }
  require_continues(run_dir, more);
}
