// Does a run end when it is told to, and does nothing of it live on?
#include "e2e/program.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <thread>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

bool alive(pid_t process) {
  const std::string stat = read_file("/proc/" + std::to_string(process) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
}

using Clock = std::chrono::steady_clock;

/// Fails the test unless all are gone ten seconds after the signal.
void require_gone(const std::vector<pid_t>& processes, Clock::time_point signalled) {
  const auto deadline = signalled + std::chrono::seconds(10);
  for (const pid_t process : processes) {
    while (alive(process) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK_FALSE(alive(process));
  }
}

}  // namespace

namespace {

/// Signals that no checkpoint answers here: SIGINT has none without a cadence, SIGTERM is no stop
/// signal of this run.
Arguments train_unsaved(const fs::path& folder, const Arguments& more = {}) {
  Arguments all = {"--set", "run.stop_signals=[]"};
  all.insert(all.end(), more.begin(), more.end());
  return train_endless(folder, all);
}

}  // namespace

TEST_CASE("signals that no checkpoint answers end a single process with 128 + n", "[signals]") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TempDir folder;
    Program program(train_unsaved(folder.path()));
    program.await_stderr("step  3/");
    program.send(signal);
    const Outcome outcome = program.wait();
    CHECK(outcome.code == 128 + signal);
    CHECK(count(outcome.err, "stopped   by SIG") == 1);
    CHECK(count(outcome.err, "there is no checkpoint, the same command starts at step 1") == 1);
    const Json status = Json::parse(read_file(folder.path() / "status.json"));
    CHECK(status.at("state") == "interrupted");
    CHECK(status.at("exit") == 128 + signal);
    CHECK(status.at("step").get<int>() >= 3);
  }
}

TEST_CASE("signals that no checkpoint answers, to the launcher, end all ranks", "[signals]") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TempDir folder;
    Program program(train_unsaved(folder.path(), {"--nproc", "4"}));
    program.await_stderr("step  2/");
    const std::vector<pid_t> ranks = program.children();
    REQUIRE(ranks.size() == 4);
    const Clock::time_point signalled = Clock::now();
    program.send(signal);
    CHECK(program.wait().code == 128 + signal);
    require_gone(ranks, signalled);
    const Json status = Json::parse(read_file(folder.path() / "status.json"));
    CHECK(status.at("state") == "interrupted");
    CHECK(status.at("exit") == 128 + signal);
    CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
  }
}

TEST_CASE("no rank outlives a launcher that is killed", "[signals]") {
  const TempDir folder;
  Program program(train_endless(folder.path(), {"--nproc", "4"}));
  program.await_stderr("step  2/");
  const std::vector<pid_t> ranks = program.children();
  REQUIRE(ranks.size() == 4);
  const Clock::time_point signalled = Clock::now();
  program.send(SIGKILL);
  program.wait();
  require_gone(ranks, signalled);
}

TEST_CASE("a rank that is killed stops the others and is named", "[signals]") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    const TempDir folder;
    Program program(train_endless(folder.path(), {"--nproc", "2"}));
    program.await_stderr("step  2/");
    const std::vector<pid_t> ranks = program.children();
    REQUIRE(ranks.size() == 2);
    const Clock::time_point signalled = Clock::now();
    ::kill(ranks[victim], SIGKILL);
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(Clock::now() - signalled < std::chrono::seconds(10));
    require_gone(ranks, signalled);
    CHECK(outcome.code == 137);
    const std::string process = std::to_string(ranks[victim]);
    const Json abort = Json::parse(read_file(folder.path() / "abort.json"));
    const std::string rank = std::to_string(abort.at("rank").get<int>());
    CHECK(count(outcome.err, "launch: rank " + rank + " of 2 (process " + process + ")") == 1);
    CHECK(abort.at("code") == 137);
    const Json status = Json::parse(read_file(folder.path() / "status.json"));
    CHECK(status.at("state") == "failed");
    CHECK(status.at("exit") == 137);
  }
}

TEST_CASE("a signal that ends one rank ends the run", "[signals]") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}}) {
    const TempDir folder;
    Program program(train_unsaved(folder.path(), {"--nproc", "4"}));
    program.await_stderr("step  2/");
    const std::vector<pid_t> ranks = program.children();
    REQUIRE(ranks.size() == 4);
    const Clock::time_point signalled = Clock::now();
    ::kill(ranks[victim], SIGTERM);
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(Clock::now() - signalled < std::chrono::seconds(10));
    require_gone(ranks, signalled);
    CHECK(outcome.code != 0);
    CHECK(Json::parse(read_file(folder.path() / "status.json")).at("state") != "running");
  }
}

TEST_CASE("a closed pipe ends a listing quietly and a run not at all", "[signals]") {
  const TempDir folder;
  const std::string binary = COLOSSAL_BINARY;
  const auto shell = [&](const std::string& command) {
    const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    return WEXITSTATUS(status);
  };
  const std::string err = (folder.path() / "err").string();
  CHECK(shell(binary + " config schema 2>" + err + " | head -c 10 >/dev/null") == 0);
  CHECK(read_file(err).empty());
  const std::string run_dir = (folder.path() / "run").string();
  shell("{ " + binary + " train " + data_file("tiny.yaml") + " --output-dir " + run_dir +
        " 2>&1; echo $? >" + run_dir + ".code; } | head -n 1 >/dev/null");
  CHECK(read_file(run_dir + ".code") == "0\n");
  CHECK(records(run_dir).size() == 12);
}
