// Does --max-restarts bring a run whose ranks are lost to the same end, and give up where it must?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <signal.h>
#include <string>
#include <vector>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// Saves every second step; restarts come soon.
Arguments restarting(const fs::path& run_dir, const char* processes, const char* restarts) {
  return train_tiny(run_dir,
                    {"--nproc",
                     processes,
                     "--max-restarts",
                     restarts,
                     "--restart-delay=0.2",
                     "--set",
                     "checkpoint.every_steps=2"});
}

}  // namespace

TEST_CASE("a run whose rank is killed is continued to the same end", "[restart]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path whole = folder.path() / (std::string("whole") + processes);
    const fs::path killed = folder.path() / (std::string("killed") + processes);
    run_expecting(0, restarting(whole, processes, "0"));
    const std::string fault =
        std::string("rank=") + (processes[0] == '1' ? "0" : "1") + ",step=7,attempt=0,kind=kill";
    const Outcome outcome = run_expecting(0, restarting(killed, processes, "1"), with_fault(fault));
    INFO(outcome.err);
    CHECK(count(outcome.err, "code  137 (Killed)") == 1);
    CHECK(count(outcome.err, "restart   1 of 1 in 0.2 s, from the checkpoint of step 6\n") == 1);
    CHECK(count(outcome.err, "resume    step 7 from ") == 1);
    require_same_losses(whole, killed, 0);
    const auto end = [](const fs::path& run) { return run / "checkpoints" / "step-00000012"; };
    require_same_tensors(end(whole), end(killed));
    CHECK(status_of(killed).at("state") == "finished");
    CHECK(status_of(killed).at("attempt") == 2);
    CHECK_FALSE(fs::exists(killed / "abort.json"));
    CHECK(fs::exists(killed / "logs" / "attempt-2" / "train.log"));
    CHECK(last_line(outcome).at("step") == 12);
  }
}

TEST_CASE("a failure that comes again at once is not restarted for ever", "[restart]") {
  const TempDir folder;
  const Outcome outcome = run_expecting(
      137, restarting(folder.path(), "2", "5"), with_fault("rank=0,step=7,kind=kill"));
  INFO(outcome.err);
  CHECK(count(outcome.err, "restart   1 of 5 in 0.2 s, from the checkpoint of step 6\n") == 1);
  CHECK(count(outcome.err,
              "restart   no: nothing was saved since the last one, from the checkpoint of step "
              "6\n") == 1);
  CHECK(status_of(folder.path()).at("state") == "failed");
  CHECK(status_of(folder.path()).at("exit") == 137);
  CHECK(status_of(folder.path()).at("attempt") == 2);
  CHECK(Json::parse(read_file(folder.path() / "abort.json")).at("attempt") == 2);
}

TEST_CASE("a time-out of a collective is restarted, from the beginning if need be", "[restart]") {
  const TempDir folder;
  Arguments arguments = restarting(folder.path(), "2", "1");
  arguments.insert(arguments.end(), {"--set", "parallel.comm.timeout=5s"});
  const Outcome outcome =
      run_expecting(0, arguments, with_fault("rank=1,step=2,attempt=0,kind=sleep:300"));
  CHECK(count(outcome.err, "restart   1 of 1 in 0.2 s, from step 0\n") == 1);
  CHECK(records(folder.path()).size() == 12);
}

TEST_CASE("what no restart can mend is not tried again", "[restart]") {
  const TempDir folder;
  const Outcome thrown = run_expecting(1,
                                       restarting(folder.path() / "throw", "2", "3"),
                                       with_fault("rank=1,step=3,attempt=0,kind=throw"));
  CHECK(count(thrown.err, "restart   no: exit code 1 would only come again\n") == 1);
  CHECK(count(thrown.err, "restart   1 of") == 0);
  const Outcome usage = run_expecting(2, train_tiny(folder.path(), {"--max-restarts", "1"}));
  CHECK(count(usage.err, "[restarts-without-nproc]") == 1);
  const Outcome number =
      run_expecting(2, train_tiny(folder.path(), {"--nproc", "2", "--max-restarts", "-1"}));
  CHECK(count(number.err, "--max-restarts") >= 1);
}

TEST_CASE("weights alone were restarted into a certain error", "[restart]") {
  const TempDir folder;
  Arguments arguments = restarting(folder.path(), "2", "3");
  arguments.insert(arguments.end(), {"--set", "checkpoint.content=weights"});
  const Outcome outcome =
      run_expecting(137, arguments, with_fault("rank=1,step=7,attempt=0,kind=kill"));
  INFO(outcome.err);
  CHECK(count(outcome.err, "restart   no: the checkpoint of step 6 holds weights alone") == 1);
  CHECK(count(outcome.err, "restart   1 of") == 0);
  CHECK(status_of(folder.path()).at("exit") == 137);
}

TEST_CASE("a restart continues also where the first start had to be new", "[restart]") {
  const TempDir folder;
  for (const Arguments& how : {Arguments{"--overwrite"}, Arguments{"--resume", "never"}}) {
    INFO(how.front());
    const fs::path run_dir = folder.path() / how.front().substr(2);
    if (how.front() == "--overwrite") {
      run_expecting(0, train_tiny(run_dir));
    }
    Arguments arguments = restarting(run_dir, "2", "1");
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Outcome outcome =
        run_expecting(0, arguments, with_fault("rank=0,step=9,attempt=0,kind=kill"));
    CHECK(count(outcome.err, "resume    step 9 from ") == 1);
    CHECK(fs::exists(run_dir.string() + ".old-1") == (how.front() == "--overwrite"));
    CHECK_FALSE(fs::exists(run_dir.string() + ".old-2"));
  }
}

TEST_CASE("a restart before the first save began without the checkpoint it was given",
          "[restart]") {
  const TempDir folder;
  const fs::path old = folder.path() / "old";
  run_expecting(0, restarting(old, "2", "0"));
  const std::string from = (old / "checkpoints" / "step-00000008").string();
  Arguments arguments = restarting(folder.path() / "new", "2", "1");
  arguments.insert(arguments.end(), {"--resume", from});
  const Outcome outcome =
      run_expecting(0, arguments, with_fault("rank=1,step=9,attempt=0,kind=kill"));
  INFO(outcome.err);
  CHECK(count(outcome.err, "restart   1 of 1 ") == 1);
  CHECK(count(outcome.err, "resume    step 9 from " + from) == 2);
  CHECK(records(folder.path() / "new").begin()->first == 9);
}

TEST_CASE("a signal while a restart is due ends the run", "[restart]") {
  const TempDir folder;
  struct Row {
    const char* name;
    const char* step;
    int code;
  };
  // Without a checkpoint there is nothing to re-queue.
  for (const Row& row : {Row{"saved", "7", 75}, Row{"nothing", "2", 128 + SIGTERM}}) {
    const fs::path run_dir = folder.path() / row.name;
    Arguments arguments = restarting(run_dir, "2", "1");
    std::ranges::replace(arguments, "--restart-delay=0.2", "--restart-delay=600");
    Program program(arguments, with_fault(fmt::format("rank=1,step={},kind=kill", row.step)));
    program.await_stderr("restart   1 of 1 in 600 s");
    program.send(SIGUSR2);
    program.send(SIGTERM);
    CHECK(program.wait().code == row.code);
    CHECK(status_of(run_dir).at("exit") == 137);  // of the failure, which a stop does not undo
  }
}

TEST_CASE("a run that was asked to stop and then failed was started again", "[restart]") {
  const TempDir folder;
  Program program(
      train_endless(folder.path(), {"--nproc", "2", "--max-restarts", "3", "--restart-delay=0.1"}),
      with_fault("rank=0,step=3,attempt=0,kind=sleep:300"));
  program.await_stderr("step  2/");
  program.send(SIGTERM);
  program.await_stderr("signal    SIGTERM");
  const std::vector<pid_t> ranks = program.children();
  REQUIRE(ranks.size() == 2);
  ::kill(ranks[1], SIGKILL);
  const Outcome outcome = program.wait();
  CHECK(outcome.code == 137);
  CHECK(count(outcome.err, "restart   no: the run was asked to stop\n") == 1);
  CHECK(count(outcome.err, "restart   1 of") == 0);
}

TEST_CASE("a run that is asked to stop is not restarted", "[restart]") {
  const TempDir folder;
  Program program(
      train_endless(folder.path(), {"--nproc", "2", "--max-restarts", "3", "--restart-delay=0.1"}));
  program.await_stderr("step  2/");
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  CHECK(outcome.code == 75);
  CHECK(count(outcome.err, "restart ") == 0);
}
