// Does the local launcher pass output on, and end the whole job with one explanation when anything
// goes wrong?
#include "process.hpp"
#include "support/catch.hpp"

#include <memory>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

using colossal::test::count_of;
using colossal::test::Process;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<Process> launch(int num_ranks,
                                const char* scenario,
                                const std::string& fault = "") {
  std::vector<std::string> environment{"OMP_NUM_THREADS=1"};
  if (!fault.empty()) {
    environment.push_back("COLOSSAL_FAULT=" + fault);
  }
  return std::make_unique<Process>(
      std::vector<std::string>{COLOSSAL_LAUNCH_PROBE, std::to_string(num_ranks), scenario},
      environment);
}

/// Process ids that the "linger" scenario prints, of all ranks.
std::vector<pid_t> lingering_pids(const Process& launcher, int num_ranks) {
  REQUIRE(launcher.wait_for_text("pid ", num_ranks));
  std::istringstream words(launcher.out() + launcher.err());
  std::vector<pid_t> pids;
  for (std::string word; words >> word;) {
    if (word == "pid") {
      words >> pids.emplace_back();
    }
  }
  return pids;
}

bool all_gone(const std::vector<pid_t>& pids, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const pid_t pid : pids) {
    while (::kill(pid, 0) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(20ms);
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a job that succeeds keeps rank 0's stdout and exits 0", "[launch]") {
  const auto job = launch(2, "steps");
  REQUIRE(job->wait(60s) == 0);
  REQUIRE(job->out() == "{\"exit\": 0}\n");
  REQUIRE(job->err().empty());
}

TEST_CASE("equal lines of several ranks appear once, others with their rank", "[launch]") {
  const auto job = launch(3, "warn");
  REQUIRE(job->wait(60s) == 0);
  INFO(job->err());
  CHECK(count_of(job->err(), "[ranks 0-2] warning: the same on every rank\n") == 1);
  CHECK(count_of(job->err(), "the same on every rank") == 1);
  CHECK(count_of(job->err(), "[rank 2] raw line of rank 2\n") == 1);
  CHECK(count_of(job->err(), "\nraw line of rank 0\n") == 1);
}

TEST_CASE("output of any size and kind arrives whole", "[launch]") {
  const auto job = launch(2, "noise");
  REQUIRE(job->wait(100s) == 0);
  const std::string& out = job->out();
  const std::string& err = job->err();
  const std::string bytes("\0\xff\x1b[31m", 7);
  CHECK(count_of(out, "long " + std::string(1 << 20, 'a') + "\n" + bytes + "\n") == 1);
  CHECK(count_of(err, "[rank 1] long " + std::string(1 << 20, 'b') + "\n") == 1);
  CHECK(count_of(out, " of 0\n") == 20'000);
  CHECK(count_of(err, "[rank 1] line ") == 20'000);
  CHECK(out.find("line 9998 of 0\nline 9999 of 0\nline 10000 of 0\n") != std::string::npos);
  CHECK(out.ends_with("the end of 0"));
  CHECK(count_of(err, "[rank 1] the end of 1") == 1);
}

TEST_CASE("a process that a rank leaves behind does not keep the job", "[launch]") {
  const auto job = launch(2, "family");
  REQUIRE(job->wait(100s) == 0);  // the process left behind sleeps for 300 s
  const auto pids = lingering_pids(*job, 2);
  for (const pid_t pid : pids) {
    ::kill(pid, SIGKILL);
  }
}

TEST_CASE("two jobs on one machine both succeed, three times", "[launch]") {
  for (int round = 0; round < 3; ++round) {
    const auto first = launch(2, "steps");
    const auto second = launch(2, "steps");
    REQUIRE(first->wait(60s) == 0);
    REQUIRE(second->wait(60s) == 0);
  }
}

TEST_CASE("a rank that throws ends the job with its own code", "[launch]") {
  const auto job = launch(3, "steps", "rank=2,step=1,kind=throw");
  REQUIRE(job->wait(60s) == 1);
  INFO(job->err());
  CHECK(count_of(job->err(), "[rank 2] error: fault asked for at step 1 [fault-thrown]") == 1);
  CHECK(count_of(job->err(), "launch: rank 2 of 3 (process ") == 1);
  CHECK(count_of(job->err(), "ended the run") == 1);
  CHECK(count_of(job->err(), "code  1 (internal)") == 1);
  CHECK(count_of(job->err(), "last  error: fault asked for at step 1 [fault-thrown]") == 1);
  CHECK(count_of(job->err(), "error: ") == 2);  // the rank's own, and its quotation
}

TEST_CASE("a rank that exits silently is named", "[launch]") {
  const auto job = launch(2, "steps", "rank=1,step=1,kind=exit:9");
  REQUIRE(job->wait(60s) == 9);
  CHECK(count_of(job->err(), "launch: rank 1 of 2 (process ") == 1);
  CHECK(count_of(job->err(), "rank 1 ended with exit code 9 without a message [peer-lost]") == 1);
  CHECK(count_of(job->err(), "error: ") == 1);
}

TEST_CASE("a signal after a failure does not hide it", "[launch]") {
  const auto job = launch(3, "steps", "rank=2,step=1,kind=throw");
  REQUIRE(job->wait_for_text("[fault-thrown]", 1));
  std::this_thread::sleep_for(700ms);  // that rank ends; its peers hear of it with a heartbeat
  job->signal(SIGTERM);
  CHECK(job->wait(60s) == 1);
  INFO(job->err());
  CHECK(count_of(job->err(), "launch: rank 2 of 3 (process ") == 1);
}

TEST_CASE("a rank killed by the system ends the job with 128 + 9", "[launch]") {
  const auto job = launch(4, "steps", "rank=3,step=2,kind=kill");
  REQUIRE(job->wait(60s) == 137);
  INFO(job->err());
  CHECK(count_of(job->err(), "launch: rank 3 of 4 (process ") == 1);
  CHECK(count_of(job->err(), "code  137 (Killed)") == 1);
  CHECK(count_of(job->err(), "rank 3 was killed by signal 9 (Killed) without a message") == 1);
}

TEST_CASE("a rank that hangs is named with its phase", "[launch]") {
  const auto job = launch(3, "steps", "rank=2,step=1,kind=sleep:60");
  REQUIRE(job->wait(60s) == 8);
  INFO(job->err());
  CHECK(count_of(job->err(),
                 "all_reduce #2 of group world (4000 bytes) did not finish within 3 s") == 2);
  CHECK(count_of(job->err(),
                 "rank 2 never entered all_reduce #2 of group world (it is in 'step 1 data')") >=
        1);
  CHECK(count_of(job->err(), "rank 0 never") == 0);
  CHECK(count_of(job->err(), "launch: rank 2 of 3 (process ") == 1);
  CHECK(count_of(job->err(), "[collective-timeout]") == 2);
}

TEST_CASE("a rank that never arrives is listed", "[launch]") {
  const auto job = launch(3, "absent");
  REQUIRE(job->wait(60s) == 8);
  INFO(job->err());
  CHECK(count_of(job->err(), "rank 1 of 3 did not arrive within 2 s") >= 1);
  CHECK(count_of(job->err(), "[rendezvous]") == 2);
  CHECK(count_of(job->err(), "launch: rank 1 of 3 (process ") == 1);
}

TEST_CASE("configurations that differ end every rank with 3", "[launch]") {
  const auto job = launch(2, "hash");
  REQUIRE(job->wait(60s) == 3);
  INFO(job->err());
  CHECK(count_of(job->err(), "configuration differs from rank 0 (hash hash-1 vs hash-0)") >= 1);
}

TEST_CASE("SIGINT and SIGTERM to the launcher stop every rank", "[launch]") {
  const int number = GENERATE(SIGINT, SIGTERM);
  const auto job = launch(3, "linger");
  const auto pids = lingering_pids(*job, 3);
  job->signal(number);
  REQUIRE(job->wait(12s) == 128 + number);
  REQUIRE(all_gone(pids, 1s));
}

TEST_CASE("a second SIGINT kills ranks that do not stop", "[launch]") {
  const auto job = launch(2, "stubborn");
  const auto pids = lingering_pids(*job, 2);
  job->signal(SIGINT);
  REQUIRE_FALSE(job->wait(500ms).has_value());
  job->signal(SIGINT);
  REQUIRE(job->wait(5s) == 130);
  REQUIRE(all_gone(pids, 1s));
}

TEST_CASE("SIGKILL to the launcher leaves no rank behind", "[launch]") {
  const auto job = launch(3, "linger");
  const auto pids = lingering_pids(*job, 3);
  job->signal(SIGKILL);
  REQUIRE(job->wait(5s) == 137);
  REQUIRE(all_gone(pids, 5s));
}
