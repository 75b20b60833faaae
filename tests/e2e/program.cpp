// How is the program started and watched? posix_spawn with stdout and stderr in files.
#include "e2e/program.hpp"

#include "e2e/places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{10};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

/// The test's environment without what a launcher of the test itself may have set.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool launcher = name == "RANK" || name == "WORLD_SIZE" || name == "LOCAL_RANK" ||
                          name == "LOCAL_WORLD_SIZE" || name == "MASTER_ADDR" ||
                          name == "MASTER_PORT" || name.starts_with("OMPI_") ||
                          name.starts_with("PMI") || name.starts_with("SLURM_");
    if (!launcher && !added.contains(name)) {
      merged.push_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    merged.push_back(name + "=" + value);
  }
  return merged;
}

/// Signals as a terminal gives them to a program, whatever this test was started with (nohup), but
/// for those that it shall ignore.
class SignalState {
 public:
  explicit SignalState(const std::vector<int>& ignored) : ignored_(ignored) {
    sigset_t defaults;
    sigset_t nothing;
    sigemptyset(&defaults);
    sigemptyset(&nothing);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
      sigaddset(&defaults, signal);
    }
    for (const int signal : ignored_) {
      sigdelset(&defaults, signal);
      std::signal(signal, SIG_IGN);
    }
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setsigmask(&attributes_, &nothing);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SignalState() {
    posix_spawnattr_destroy(&attributes_);
    for (const int signal : ignored_) {
      std::signal(signal, SIG_DFL);
    }
  }
  SignalState(const SignalState&) = delete;
  SignalState& operator=(const SignalState&) = delete;

  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  std::vector<int> ignored_;
  posix_spawnattr_t attributes_{};
};

pid_t spawn(const Arguments& arguments, const Setting& setting, const fs::path& folder) {
  std::vector<std::string> words = {COLOSSAL_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = merged_environment(setting.environment);
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, setting.input.c_str(), O_RDONLY, 0);
  const fs::path out = setting.output.empty() ? folder / "out" : fs::path(setting.output);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (folder / "err").c_str(), flags, 0600);
  for (const int stream : setting.closed) {
    posix_spawn_file_actions_addclose(&actions, stream);
  }
  const SignalState signals(setting.ignored);
  pid_t pid = -1;
  const int error = posix_spawn(&pid,
                                COLOSSAL_BINARY,
                                &actions,
                                signals.attributes(),
                                pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
  return pid;
}

/// Enough of a log to see what went wrong.
std::string head_of(const fs::path& file) {
  return read_file(file).substr(0, 4000);
}

pid_t parent_of(const fs::path& process) {
  const std::string stat = read_file(process / "stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) {
    return -1;
  }
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  pid_t parent = -1;
  fields >> state >> parent;
  return parent;
}

}  // namespace

Program::Program(const Arguments& arguments, const Setting& setting)
    : setting_(setting),
      command_(arguments.empty() ? "" : arguments.front()),
      start_(std::chrono::steady_clock::now()),
      pid_(spawn(arguments, setting, folder_.path())) {}

Program::~Program() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }
}

void Program::send(int signal) const {
  REQUIRE(::kill(pid_, signal) == 0);
}

bool Program::has_ended() {
  ended_ = ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

void Program::await_stderr(const std::string& text) {
  const fs::path file = folder_.path() / "err";
  while (read_file(file).find(text) == std::string::npos) {
    const bool late = std::chrono::steady_clock::now() - start_ > setting_.timeout;
    INFO("waiting for '" << text << "' in:\n" << head_of(file));
    REQUIRE_FALSE((late || has_ended()));
    std::this_thread::sleep_for(kPoll);
  }
  start_ = std::chrono::steady_clock::now();
}

void Program::await_held_signals() {
  const fs::path file = fs::path("/proc") / std::to_string(pid_) / "status";
  const auto held = [&] {
    const std::string status = read_file(file);
    const std::size_t at = status.find("SigBlk:");
    return at != std::string::npos &&
           (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
  };
  while (!held()) {
    REQUIRE_FALSE(has_ended());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Outcome Program::wait() {
  while (!has_ended()) {
    INFO("no end after " << setting_.timeout.count() << " s:\n" << head_of(folder_.path() / "err"));
    REQUIRE(std::chrono::steady_clock::now() - start_ < setting_.timeout);
    std::this_thread::sleep_for(kPoll);
  }
  Outcome outcome;
  outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  outcome.out = read_file(folder_.path() / "out");
  outcome.err = read_file(folder_.path() / "err");
  require_places(command_, outcome.err);
  return outcome;
}

std::vector<pid_t> Program::children() const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos &&
        parent_of(entry.path()) == pid_) {
      found.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return found;
}

Outcome run(const Arguments& arguments, const Setting& setting) {
  return Program(arguments, setting).wait();
}

Outcome run_expecting(int code, const Arguments& arguments, const Setting& setting) {
  Outcome outcome = run(arguments, setting);
  std::string command = "colossal-train";
  for (const std::string& argument : arguments) {
    command += " " + argument;
  }
  INFO(command << "\nstdout:\n" << outcome.out << "\nstderr:\n" << outcome.err);
  REQUIRE(outcome.code == code);
  return outcome;
}

Arguments train_tiny(const fs::path& folder, const Arguments& more) {
  Arguments arguments = {"train", data_file("tiny.yaml"), "--output-dir", folder.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Arguments train_endless(const fs::path& folder, const Arguments& more) {
  Arguments arguments =
      train_tiny(folder, {"--set", "train.steps=1M", "--set", "checkpoint.every_steps=null"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Arguments joined(const std::vector<Arguments>& parts) {
  Arguments all;
  for (const Arguments& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Arguments with_device(double bytes, Arguments more) {
  more.emplace_back("--set");
  more.push_back(fmt::format("run.device_memory={}", static_cast<std::int64_t>(bytes)));
  return more;
}

Setting torchrun_rank(int rank, int world_size, int port) {
  return {.environment = {{"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", std::to_string(world_size)},
                          {"LOCAL_RANK", std::to_string(rank)},
                          {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(port)}}};
}

Setting with_fault(const std::string& fault, Setting setting) {
  setting.environment["COLOSSAL_FAULT"] = fault;
  return setting;
}

fs::path checkpoint(const fs::path& run_dir, int step) {
  return run_dir / "checkpoints" / fmt::format("step-{:08}", step);
}

std::vector<std::string> stored(const fs::path& run_dir, const std::string& start) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Json status_of(const fs::path& run_dir) {
  return Json::parse(read_file(run_dir / "status.json"));
}

std::string data_file(const std::string& name) {
  return std::string(COLOSSAL_TEST_DATA) + "/" + name;
}

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  REQUIRE(out.flush().good());
}

void flip_bytes(const fs::path& file) {
  std::string bytes = read_file(file);
  constexpr std::size_t kStride = 512;
  for (std::size_t at = bytes.size() / 2; at < bytes.size(); at += kStride) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  }
  write_file(file, bytes);
}

int times_told(const Outcome& outcome, const std::string& part) {
  return count(outcome.err.substr(0, outcome.err.find("launch: rank ")), part);
}

std::map<int, Json> records(const fs::path& folder, const std::string& kind) {
  std::map<int, Json> found;
  std::istringstream lines(read_file(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    if (record.at("kind") == kind) {
      const int step = record.at("step").get<int>();
      found[step] = std::move(record);
    }
  }
  return found;
}

Json last_line(const Outcome& outcome) {
  const std::size_t end = outcome.out.find_last_not_of('\n') + 1;
  const std::size_t before = outcome.out.rfind('\n', end == 0 ? 0 : end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return Json::parse(outcome.out.substr(begin, end - begin));
}

void require_same_tensors(const fs::path& a, const fs::path& b) {
  const Outcome outcome =
      run_expecting(0, {"inspect", a.string(), "--diff", b.string(), "--format", "json"});
  const Json diff = Json::parse(outcome.out).at("diff");
  INFO(diff.dump());
  CHECK(diff.at("equal").get<int>() > 0);
  CHECK(diff.at("only_here").empty());
  CHECK(diff.at("only_there").empty());
  CHECK(diff.at("shapes").empty());
  CHECK(diff.at("max_difference").empty());  // lists what differs
}

void require_same_losses(const fs::path& a, const fs::path& b, double tolerance) {
  const std::map<int, Json> first = records(a);
  const std::map<int, Json> second = records(b);
  REQUIRE_FALSE(first.empty());
  REQUIRE(first.size() == second.size());
  for (const auto& [step, record] : first) {
    INFO("step " << step << " of " << a << " and " << b);
    REQUIRE(second.contains(step));
    const auto one = record.at("loss").get<double>();
    const auto two = second.at(step).at("loss").get<double>();
    CHECK(std::abs(one - two) <= tolerance * std::abs(one));
    CHECK(record.at("data_hash") == second.at(step).at("data_hash"));
    CHECK(record.at("lr") == second.at(step).at("lr"));
  }
}

}  // namespace colossal::test
