// Does a run that fails on some rank end everywhere, say it once, and leave a true run directory?
#include "e2e/program.hpp"
#include "support/free_port.hpp"

#include <algorithm>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// The folder of a run that failed must say so: root cause and exit code, in both files.
void require_failed(const fs::path& run, int rank, int rank_code, int run_code) {
  const Json abort = Json::parse(read_file(run / "abort.json"));
  const Json status = Json::parse(read_file(run / "status.json"));
  INFO(abort.dump() << "\n" << status.dump());
  CHECK(abort.at("rank") == rank);
  CHECK(abort.at("code") == rank_code);
  CHECK(status.at("state") == "failed");
  CHECK(status.at("exit") == run_code);
  CHECK(abort.at("attempt") == status.at("attempt"));
}

std::string id_of_abort(const fs::path& run) {
  return Json::parse(read_file(run / "abort.json")).at("id").get<std::string>();
}

}  // namespace

TEST_CASE("a rank that never enters a collective is named by a time-out", "[launch]") {
  const TempDir folder;
  // Long enough for four ranks on two busy cores to reach each other in every step but that one.
  Program program(
      train_endless(folder.path(), {"--nproc", "4", "--set", "parallel.comm.timeout=20s"}),
      with_fault("rank=2,step=2,kind=sleep:300"));
  program.await_stderr("step  1/");
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = program.wait();
  INFO(outcome.err);
  REQUIRE(outcome.code == 8);
  // The time-out, ten seconds for everybody to end, and twenty for a busy machine.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(50));
  CHECK(count(outcome.err, "rank 2 never entered") == 2);  // the message, and the block's quotation
  CHECK(count(outcome.err, "launch: rank 2 of 4 (process ") == 1);
  require_failed(folder.path(), 2, 8, 8);
  CHECK(id_of_abort(folder.path()) == "collective-timeout");
  const Json phases = Json::parse(read_file(folder.path() / "abort.json")).at("phases");
  CHECK(phases.size() == 4);
  CHECK(phases.at("2").get<std::string>().starts_with("step 2"));
}

TEST_CASE("a rank that throws is named, with its log", "[launch]") {
  const TempDir folder;
  const Outcome outcome = run_expecting(
      1, train_endless(folder.path(), {"--nproc", "2"}), with_fault("rank=1,step=3,kind=throw"));
  INFO(outcome.err);
  const fs::path log = folder.path() / "logs" / "rank-0001.log";
  CHECK(count(outcome.err, "[rank 1] error: fault asked for at step 3 [fault-thrown]") == 1);
  CHECK(count(outcome.err, "error: ") == 2);  // and the block's quotation
  CHECK(count(outcome.err, "launch: rank 1 of 2 (process ") == 1);
  CHECK(count(outcome.err, "  code  1 (internal)\n") == 1);
  CHECK(count(outcome.err, "  log   " + log.string() + "\n") == 1);
  CHECK(count(read_file(log), "error: fault asked for at step 3 [fault-thrown]\n") == 1);
  CHECK(count(read_file(folder.path() / "logs" / "train.log"), "rank 1 failed: fault asked") == 1);
  require_failed(folder.path(), 1, 1, 1);
  CHECK(id_of_abort(folder.path()) == "fault-thrown");
  const Json phases = Json::parse(read_file(folder.path() / "abort.json")).at("phases");
  CHECK(phases.at("1").get<std::string>().starts_with("step 3"));
  CHECK_FALSE(phases.at("0").get<std::string>().empty());
}

TEST_CASE("rank 0's own failure leaves the same files", "[launch]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run = folder.path() / processes;
    const Outcome outcome = run_expecting(
        1, train_endless(run, {"--nproc", processes}), with_fault("rank=0,step=3,kind=throw"));
    INFO(outcome.err);
    CHECK(count(outcome.err, "error: fault asked for at step 3 [fault-thrown]") >= 1);
    require_failed(run, 0, 1, 1);
    CHECK(Json::parse(read_file(run / "status.json")).at("step") == 2);
    CHECK(count(read_file(run / "logs" / "train.log"), "[fault-thrown]") == 1);
  }
}

TEST_CASE("without a launcher, the rank that is left writes why", "[launch]") {
  const TempDir folder;
  const int port = free_port();
  const std::string fault = "rank=1,step=3,kind=throw";
  const Arguments arguments = train_endless(folder.path());
  Program first(arguments, with_fault(fault, torchrun_rank(0, 2, port)));
  Program second(arguments, with_fault(fault, torchrun_rank(1, 2, port)));
  const Outcome rank_1 = second.wait();
  const Outcome rank_0 = first.wait();
  INFO(rank_0.err << "--- rank 1\n" << rank_1.err);
  CHECK(rank_1.code == 1);
  CHECK(rank_0.code == 8);
  CHECK(count(rank_0.err + rank_1.err, "error: ") == 1);
  require_failed(folder.path(), 1, 1, 1);
  CHECK(fs::exists(folder.path() / "logs" / "train.log"));
  CHECK(fs::exists(folder.path() / "logs" / "rank-0001.log"));
}

TEST_CASE("without a launcher, a killed rank 0 is written down by another rank", "[launch]") {
  const TempDir folder;
  const int port = free_port();
  const Arguments arguments = train_endless(folder.path());
  Program first(arguments, torchrun_rank(0, 2, port));
  Program second(arguments, torchrun_rank(1, 2, port));
  first.await_stderr("step  2/");
  first.send(SIGKILL);
  CHECK(second.wait().code == 8);
  first.wait();
  require_failed(folder.path(), 0, 8, 8);
}

TEST_CASE("a rank that never arrives is listed within comm.init_timeout", "[launch]") {
  const TempDir folder;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome =
      run_expecting(8,
                    train_tiny(folder.path(), {"--set", "parallel.comm.init_timeout=5s"}),
                    torchrun_rank(0, 2, free_port()));
  // Five seconds, ten to start and to end, and thirty for a busy machine.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(45));
  CHECK(count(outcome.err, "rank 1 of 2 did not arrive within 5 s") == 1);
  require_failed(folder.path(), 1, 8, 8);
  CHECK(id_of_abort(folder.path()) == "rendezvous");
}

TEST_CASE("ten pairs of jobs on one machine do not meet", "[launch]") {
  const TempDir folder;
  const Arguments short_run = {
      "--nproc", "2", "--set", "train.steps=2", "--set", "scheduler.warmup_steps=0"};
  for (int round = 0; round < 10; ++round) {
    const fs::path here = folder.path() / std::to_string(round);
    Program first(train_tiny(here / "a", short_run));
    Program second(train_tiny(here / "b", short_run));
    CHECK(first.wait().code == 0);
    CHECK(second.wait().code == 0);
    require_same_losses(here / "a", here / "b", 0);
  }
}

TEST_CASE("the next attempt starts clean, in log files of its own", "[launch]") {
  const TempDir folder;
  run_expecting(
      1, train_tiny(folder.path(), {"--nproc", "2"}), with_fault("rank=1,step=9,kind=throw"));
  require_failed(folder.path(), 1, 1, 1);
  const Outcome outcome = run_expecting(0, train_tiny(folder.path(), {"--nproc", "2"}));
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  CHECK(Json::parse(read_file(folder.path() / "status.json")).at("state") == "finished");
  const fs::path log = folder.path() / "logs" / "attempt-2" / "train.log";
  CHECK(count(read_file(log), "resume    step 7 from ") == 1);
  CHECK(count(read_file(folder.path() / "logs" / "train.log"), "resume ") == 0);
}

TEST_CASE("mistakes that all ranks find alike are told once", "[launch]") {
  const TempDir folder;
  const int port = free_port();
  const Arguments arguments = train_tiny(folder.path(), {"--overwrite", "--resume", "auto"});
  Program first(arguments, torchrun_rank(0, 2, port));
  Program second(arguments, torchrun_rank(1, 2, port));
  const Outcome rank_0 = first.wait();
  const Outcome rank_1 = second.wait();
  CHECK(rank_0.code == 2);
  CHECK(rank_1.code == 2);
  CHECK(count(rank_0.err, "[overwrite-resume]") == 1);
  CHECK(rank_1.err.empty());
}

TEST_CASE("a rank that is told to be alone tells its own mistakes", "[launch]") {
  const TempDir folder;
  const Setting second = torchrun_rank(1, 2, free_port());
  const auto alone = [&](Arguments more) {
    more.insert(more.begin(), {"--launch", "single"});
    return train_tiny(folder.path() / "run", more);
  };
  const Arguments nowhere = {
      "train", data_file("tiny.yaml"), "--launch=single", "--output-dir", "/proc/x"};
  CHECK(count(run_expecting(3, nowhere, second).err, "[output-not-writable]") == 1);
  CHECK(count(run_expecting(2, alone({"--bogus"}), second).err, "--bogus") >= 1);
  Arguments json = nowhere;
  json.insert(json.end(), {"--diagnostics", "json"});
  CHECK(last_line(run_expecting(3, json, second)).at("id") == "output-not-writable");
  // Among others it stays silent, also about the word that says how it was launched.
  CHECK(run_expecting(2, train_tiny(folder.path(), {"--bogus"}), second).err.empty());
  CHECK(run_expecting(2, train_tiny(folder.path(), {"--launch", "mpi"}), second).err.empty());
}

TEST_CASE("of ranks on several machines one tells a program what is wrong, one a machine people",
          "[launch]") {
  const TempDir folder;
  const auto rank_of_4 = [](int rank) {
    Setting setting = torchrun_rank(rank, 4, free_port());
    setting.environment["LOCAL_RANK"] = std::to_string(rank % 2);
    setting.environment["LOCAL_WORLD_SIZE"] = "2";
    return setting;
  };
  const Arguments arguments =
      train_tiny(folder.path(), {"--set", "train.steps=x", "--diagnostics", "json"});
  const Outcome first = run_expecting(3, arguments, rank_of_4(0));
  CHECK(Json::parse(first.out).at("id") == "bad-int");
  CHECK(first.err.empty());
  const Outcome third = run_expecting(3, arguments, rank_of_4(2));
  CHECK(third.out.empty());
  CHECK(count(third.err, "[bad-int]") == 1);
  for (const int rank : {1, 3}) {
    const Outcome other = run_expecting(3, arguments, rank_of_4(rank));
    CHECK(other.out.empty());
    CHECK(other.err.empty());
  }
}

TEST_CASE("a rank that throws ends all ranks within ten seconds", "[launch]") {
  const TempDir folder;
  for (const int rank : {0, 3}) {
    const fs::path run = folder.path() / std::to_string(rank);
    Program program(train_endless(run, {"--nproc", "4"}),
                    with_fault("rank=" + std::to_string(rank) + ",step=3,kind=throw"));
    program.await_stderr("step  2/");
    const std::vector<pid_t> ranks = program.children();
    CHECK(ranks.size() == 4);
    program.await_stderr("fault asked for");
    const auto thrown = std::chrono::steady_clock::now();
    CHECK(program.wait().code == 1);
    CHECK(std::chrono::steady_clock::now() - thrown < std::chrono::seconds(10));
    for (const pid_t pid : ranks) {
      CHECK(::kill(pid, 0) == -1);
    }
  }
}

TEST_CASE("ranks lived thirteen seconds after one was lost during the start", "[launch]") {
  for (const bool stopped : {false, true}) {  // one that nothing but SIGKILL ends
    INFO(stopped);
    const TempDir folder;
    Program program(
        train_endless(folder.path(), {"--nproc", "3", "--set", "train.global_batch_size=6"}));
    std::vector<pid_t> ranks;
    const auto is_started = [](pid_t rank) {  // its launcher waits for it until then
      return count(read_file("/proc/" + std::to_string(rank) + "/environ"), "LOCAL_RANK=") == 1;
    };
    while (!program.has_ended() && (ranks.size() < 3 || !std::ranges::all_of(ranks, is_started))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ranks = program.children();
    }
    REQUIRE(ranks.size() == 3);
    if (stopped) {
      ::kill(ranks[2], SIGSTOP);
    }
    const auto lost = std::chrono::steady_clock::now();
    ::kill(ranks[1], SIGKILL);
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(std::chrono::steady_clock::now() - lost < std::chrono::seconds(10));
    CHECK(outcome.code == 137);
    CHECK(count(outcome.err, "with a checkpoint") == 0);
    CHECK(count(outcome.err, "was killed by signal 9 (Killed) without a message") >= 1);
    for (const pid_t pid : ranks) {
      CHECK(::kill(pid, 0) == -1);
    }
  }
}

TEST_CASE("a foreign listener on MASTER_PORT held a rank for ever", "[launch]") {
  const TempDir folder;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener, 8) == 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const Outcome outcome =
      run_expecting(8,
                    train_tiny(folder.path(), {"--set", "parallel.comm.init_timeout=2s"}),
                    torchrun_rank(1, 2, ntohs(address.sin_port)));
  ::close(listener);
  CHECK(count(outcome.err, "[rendezvous]") == 1);
  CHECK(count(outcome.err, "within 2 s") == 1);
  CHECK(count(outcome.err, "\n  fix   ") == 1);
}
