// How is a test's program started and observed?
#include "process.hpp"

#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace colossal::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_launcher_variable(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  for (const std::string_view known :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (name == known) {
      return true;
    }
  }
  for (const std::string_view start :
       {"COLOSSAL_", "TORCHELASTIC_", "OMPI_", "PMI", "MPI_LOCAL", "SLURM_"}) {
    if (name.starts_with(start)) {
      return true;
    }
  }
  return false;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) {
    all.push_back(text.data());
  }
  all.push_back(nullptr);
  return all;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  std::vector<std::string> entries = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_launcher_variable(*entry)) {
      entries.emplace_back(*entry);
    }
  }
  std::vector<std::string> argv = arguments;
  const std::string out = folder_.path() / "out";
  const std::string err = folder_.path() / "err";
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_CREAT | O_WRONLY, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_CREAT | O_WRONLY, 0600);
  const int failure = ::posix_spawn(&pid_,
                                    arguments.front().c_str(),
                                    &actions,
                                    nullptr,
                                    pointers(argv).data(),
                                    pointers(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw std::runtime_error("cannot start " + arguments.front());
  }
}

Process::~Process() {
  if (!code_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::optional<int> Process::wait(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!code_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (Clock::now() > deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return code_;
}

bool Process::wait_for_text(const std::string& text, int count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (count_of(out() + err(), text) < count) {
    if (Clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void Process::signal(int number) const {
  ::kill(pid_, number);
}

std::string Process::out() const {
  return read_all(folder_.path() / "out");
}
std::string Process::err() const {
  return read_all(folder_.path() / "err");
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace colossal::test
