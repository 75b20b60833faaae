// What does a run do when the machine around it fails: disks, folders, streams, users in a hurry?
#include "e2e/program.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A volume of its own in memory, whose size can be changed; gone with this object. Mounting needs
/// a privilege: without it is_mounted() is false, which the test says.
class Volume {
 public:
  Volume() {
    // Mounts of a namespace of our own vanish with this process, whatever happens to it.
    static const bool own = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    mounted_ = own && ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=4g") == 0;
    if (!mounted_) {
      WARN("skipped: mounting a volume is not permitted here: " << std::strerror(errno));
    }
  }
  ~Volume() {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
  }
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  [[nodiscard]] bool is_mounted() const { return mounted_; }
  [[nodiscard]] fs::path path() const { return folder_.path(); }
  /// Leaves less than a page free.
  void fill_up() const {
    bool full = false;
    for (int attempt = 0; attempt < 100 && !full; ++attempt) {  // whoever writes may be quicker
      const fs::space_info space = fs::space(path());
      full = resize(space.capacity - space.free);
    }
    REQUIRE(full);
  }
  void make_room() const { REQUIRE(resize(kRoomy)); }
  void make_read_only() const {
    REQUIRE(::mount("tmpfs", path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0);
  }

 private:
  static constexpr std::uintmax_t kRoomy = std::uintmax_t{4} << 30;

  [[nodiscard]] bool resize(std::uintmax_t bytes) const {
    const std::string size = "size=" + std::to_string(bytes);
    return ::mount("tmpfs", path().c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0;
  }

  TempDir folder_;
  bool mounted_ = false;
};

/// Fails the test unless every line of a file is a JSON object. Returns their number.
int whole_records(const fs::path& file) {
  std::ifstream lines(file);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    INFO(file << ": " << line);
    REQUIRE(Json::accept(line));
  }
  return number;
}

bool all_gone(const std::vector<pid_t>& processes) {
  return std::all_of(processes.begin(), processes.end(), [](pid_t process) {
    return ::kill(process, 0) != 0 && errno == ESRCH;
  });
}

}  // namespace

TEST_CASE("a second signal ends a run at once, and nothing of it lives on", "[faults]") {
  for (const char* processes : {"1", "2"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      INFO(processes << " processes, signal " << signal);
      const TempDir folder;
      // Long in a step, which a first signal would wait for.
      Program program(train_endless(folder.path(),
                                    {"--nproc", processes, "--set", "checkpoint.every_steps=1M"}),
                      with_fault("rank=0,step=3,kind=sleep:300"));
      program.await_stderr("step  2/");
      const std::vector<pid_t> ranks = program.children();
      program.send(signal);
      program.await_stderr("signal    SIG");
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      program.send(signal);
      CHECK(program.wait().code == 128 + signal);
      while (!all_gone(ranks) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      CHECK(all_gone(ranks));
      run_expecting(0, train_tiny(folder.path()));  // the folder is free again
    }
  }
}

TEST_CASE("a folder on a read-only volume is named before any training", "[faults]") {
  const Volume volume;
  if (!volume.is_mounted()) {
    return;
  }
  run_expecting(0, train_tiny(volume.path() / "old"));
  volume.make_read_only();
  for (const char* processes : {"1", "2"}) {
    for (const char* run : {"new", "old"}) {
      const Outcome outcome = run_expecting(
          3, train_tiny(volume.path() / run, {"--nproc", processes, "--set", "train.steps=20"}));
      INFO(outcome.err);
      CHECK(times_told(outcome, "[output-not-writable]") == 1);
      CHECK(count(outcome.err, "Read-only file system") >= 1);
      CHECK(count(outcome.err, "step  1") == 0);
    }
  }
  run_expecting(0, {"eval", "--checkpoint", (volume.path() / "old").string()});
  run_expecting(0, {"inspect", (volume.path() / "old").string(), "--verify"});
}

TEST_CASE("a full volume is named before any training, whatever volume the shell stands on",
          "[faults]") {
  const Volume volume;
  if (!volume.is_mounted()) {
    return;
  }
  volume.fill_up();
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = volume.path() / "run";
    const Outcome outcome = run_expecting(3, train_tiny(run_dir, {"--nproc", processes}));
    INFO(outcome.err);
    CHECK(times_told(outcome, "[disk-low]") == 1);
    CHECK(count(outcome.err, "the volume of " + run_dir.string() + " has 0 B free") >= 1);
    CHECK(count(outcome.err, " and 1.1 GB to spare need ") >= 1);
    CHECK(count(outcome.err, "launch:") == 0);
    CHECK_FALSE(fs::exists(run_dir));
  }
  const Outcome unsaved = run_expecting(
      3,
      train_tiny(volume.path() / "run",
                 {"--set", "checkpoint.at_end=false", "--set", "checkpoint.every_steps=null"}));
  INFO(unsaved.err);
  CHECK(times_told(unsaved, "[disk-low]") == 1);
  CHECK(count(unsaved.err, "1.1 GB to spare are needed") >= 1);
  CHECK(count(unsaved.err, "two checkpoints") == 0);
}

TEST_CASE("a full or read-only volume for optimizer states is named before any training",
          "[faults]") {
  const Volume volume;
  if (!volume.is_mounted()) {
    return;
  }
  const TempDir folder;
  const auto refused = [&](const std::string& id) {
    const Outcome outcome = run_expecting(
        3,
        train_tiny(
            folder.path() / "run",
            {"--set",
             "parallel.gemini={placement: cpu, nvme: {path: " + volume.path().string() + "}}"}));
    CHECK(times_told(outcome, "[" + id + "]") == 1);
    CHECK(count(outcome.err, "step  1") == 0);
    return outcome.err;
  };
  write_file(volume.path() / "others", "a page");
  volume.fill_up();
  CHECK(count(refused("nvme-space"), " has 0 free: ") == 1);
  volume.make_room();
  volume.make_read_only();
  CHECK(count(refused("nvme-path"), "Read-only file system") >= 1);
}

TEST_CASE("a disk that fills up ends a run after three failed checkpoints, and it goes on later",
          "[faults]") {
  for (const char* processes : {"1", "2"}) {
    const Volume volume;
    if (!volume.is_mounted()) {
      return;
    }
    const fs::path run_dir = volume.path() / "run";
    Program program(
        train_endless(run_dir, {"--nproc", processes, "--set", "checkpoint.every_steps=10"}));
    program.await_stderr("-> checkpoints/step-00000020");
    volume.fill_up();
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(outcome.code == 5);
    CHECK(count(outcome.err, "of 3 failures in a row that end the run") >= 2);
    CHECK(count(outcome.err, "[checkpoint-write]") >= 1);
    CHECK(count(outcome.err, "no space left") >= 3);
    volume.make_room();
    run_expecting(0, {"inspect", run_dir.string(), "--verify"});
    const Outcome resumed = run_expecting(0,
                                          train_tiny(run_dir,
                                                     {"--nproc",
                                                      processes,
                                                      "--set",
                                                      "train.steps=5k",
                                                      "--set",
                                                      "checkpoint.every_steps=1k"}));
    CHECK(count(resumed.err, "resume    step ") == 1);
    whole_records(run_dir / "metrics.jsonl");
  }
}

TEST_CASE("a full disk does not end a run by its logs", "[faults]") {
  const Volume volume;
  if (!volume.is_mounted()) {
    return;
  }
  const fs::path run_dir = volume.path() / "run";
  Arguments lengthy;
  for (const char* set : {"train.steps=6000",
                          "checkpoint.every_steps=null",
                          "checkpoint.at_end=false",
                          "logging.csv=true"}) {
    lengthy.insert(lengthy.end(), {"--set", set});
  }
  Program program(train_tiny(run_dir, lengthy));
  program.await_stderr("step  200/");
  volume.fill_up();
  program.await_stderr("metrics.jsonl: a record is lost");  // however far the run is by now
  program.await_stderr("status.json keeps its old content");
  volume.make_room();
  const Outcome outcome = program.wait();
  CHECK(outcome.code == 0);
  CHECK(count(outcome.err, "metrics.jsonl: a record is lost: No space left on device") >= 1);
  CHECK(count(outcome.err, "status.json keeps its old content") >= 1);
  CHECK(count(outcome.err, "\n") <
        6500);  // a line a step; repeated warnings are counted, not told each time
  const int written = whole_records(run_dir / "metrics.jsonl");
  CHECK(written > 200);
  CHECK(written < 6000);
  CHECK(records(run_dir).contains(6000));  // what comes after the space is written again
  CHECK(count(read_file(run_dir / "logs" / "train.log"), "step  6,000/") == 1);
  CHECK(Json::parse(read_file(run_dir / "status.json")).at("state") == "finished");
}

TEST_CASE("a limit on file sizes is an error with a name, not a silent death", "[faults]") {
  const TempDir folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{20'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Outcome outcome = run(train_tiny(folder.path(), {"--set", "checkpoint.every_steps=null"}));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  INFO(outcome.err);
  CHECK(outcome.code == 5);
  CHECK(count(outcome.err, "[checkpoint-write]") == 1);
  CHECK(count(outcome.err, "rank-0000.h5") >= 1);
}

TEST_CASE("of two runs that start in one folder at once, one trains", "[faults]") {
  const TempDir folder;
  Program first(train_endless(folder.path(), {"--nproc", "2"}));
  Program second(train_endless(folder.path(), {"--nproc", "2"}));
  while (!first.has_ended() && !second.has_ended()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Program& loser = first.has_ended() ? first : second;
  Program& winner = first.has_ended() ? second : first;
  const Outcome refused = loser.wait();
  INFO(refused.err);
  CHECK(refused.code == 3);
  CHECK(times_told(refused, "[output-in-use]") == 1);
  winner.await_stderr("step  2/");
  winner.send(SIGTERM);
  CHECK(winner.wait().code == 75);
  CHECK(whole_records(folder.path() / "metrics.jsonl") >= 2);
}

TEST_CASE("more ranks than samples: training says so, evaluation works", "[faults]") {
  const TempDir folder;
  const Outcome few = run_expecting(
      4,
      train_tiny(
          folder.path() / "few",
          {"--nproc", "4", "--set", "train.global_batch_size=4", "--set", "data.num_samples=3"}));
  INFO(few.err);
  CHECK(count(few.err, "[data-too-small]") == 1);
  CHECK(count(few.err, "launch:") == 0);  // found before a rank exists
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  Json alone;
  for (const char* processes : {"1", "4"}) {
    const Json result = last_line(run_expecting(0,
                                                {"eval",
                                                 "--checkpoint",
                                                 run_dir.string(),
                                                 "--nproc",
                                                 processes,
                                                 "--set",
                                                 "data.num_samples=20"}));
    CHECK(result.at("samples") == 2);  // a tenth of the set
    alone = alone.is_null() ? result : alone;
    CHECK(result.at("loss").get<double>() == Approx(alone.at("loss").get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("streams that are closed do not end up in files", "[faults]") {
  const TempDir folder;
  const std::vector<std::vector<int>> cases = {{0}, {1}, {2}, {0, 1, 2}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const char* processes : {"1", "2"}) {
      const fs::path run_dir = folder.path() / (std::to_string(i) + "-" + processes);
      INFO("case " << i << ", " << processes << " processes");
      const Outcome outcome =
          run(train_tiny(run_dir, {"--nproc", processes}), {.closed = cases[i]});
      INFO(outcome.err);
      CHECK(outcome.code == 0);
      CHECK(whole_records(run_dir / "metrics.jsonl") == 13);  // twelve steps and an evaluation
      CHECK(Json::parse(read_file(run_dir / "status.json")).at("state") == "finished");
      run_expecting(0, {"inspect", run_dir.string(), "--verify"});
      require_same_losses(folder.path() / "0-1", run_dir, 1e-5);
    }
  }
  CHECK(run({"config", "schema"}, {.closed = {1}}).code == 0);
  const Outcome wrong = run({"config", "show", "none.yaml"}, {.closed = {2}});
  CHECK(wrong.code == 3);
}

TEST_CASE("results that cannot be written are a failure, but not of the run", "[faults]") {
  const TempDir folder;
  for (const Arguments& command : {Arguments{"config", "schema"},
                                   Arguments{"config", "show", data_file("tiny.yaml")},
                                   train_tiny(folder.path()),
                                   train_tiny(folder.path() / "two", {"--nproc", "2"})}) {
    const Outcome outcome = run(command, {.output = "/dev/full"});
    INFO(outcome.err);
    CHECK(outcome.code == 9);
    CHECK(count(outcome.err, "error: cannot write the results to stdout: ") == 1);
  }
  CHECK(Json::parse(read_file(folder.path() / "status.json")).at("state") == "finished");
  CHECK(records(folder.path()).size() == 12);
}

TEST_CASE("a folder whose name is no UTF-8 is refused by name before anything is written",
          "[faults]") {
  const TempDir folder;
  const fs::path odd = folder.path() / "caf\xff";
  const fs::path tiny = folder.path() / "tiny.yaml";
  write_file(tiny, read_file(data_file("tiny.yaml")));
  for (const char* processes : {"1", "2"}) {
    const Outcome outcome = run_expecting(3, train_tiny(odd, {"--nproc", processes}));
    CHECK(times_told(outcome, "--output-dir: error: byte 0xff is not valid UTF-8") == 1);
    CHECK(count(outcome.err, "[not-utf8]") == 1);
    CHECK_FALSE(fs::exists(odd));
  }
  const Outcome name = run_expecting(3, {"validate", "--set", "run.name=a\xff", tiny.string()});
  CHECK(count(name.out, "[not-utf8]") == 1);
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  fs::rename(run_dir, odd);
  CHECK(last_line(run_expecting(0, {"eval", "--checkpoint", odd.string()})).at("step") == 12);
  const Outcome inspected = run_expecting(0, {"inspect", odd.string(), "--format", "json"});
  CHECK(Json::parse(inspected.out).at("state").at("step") == 12);
}

TEST_CASE("a thousand --set reach every rank, the last of a key wins", "[faults]") {
  const TempDir folder;
  Arguments many;
  for (int i = 1; i <= 1000; ++i) {
    many.insert(many.end(), {"--set", "optimizer.lr=" + std::to_string(i) + "e-5"});
  }
  many.insert(many.end(), {"--nproc", "2", "--set", "scheduler=null"});
  run_expecting(0, train_tiny(folder.path(), many));
  CHECK(records(folder.path()).at(12).at("lr").get<double>() == Approx(1e-2));
  Arguments wrong;
  for (int i = 0; i < 200; ++i) {
    wrong.insert(wrong.end(), {"--set", "optimizer.lr" + std::to_string(i) + "=1"});
  }
  const Outcome outcome = run_expecting(3, train_tiny(folder.path() / "none", wrong));
  CHECK(count(outcome.err, "[unknown-key]") > 1);
  CHECK(count(outcome.err, "more errors are not shown") == 1);
}
