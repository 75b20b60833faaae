// Do the facts about a machine follow from the machine? Limits, folders and variables are changed
// here and must show.
#include "train/host_facts.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// Variables of this process while the object lives.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Variables() {
    for (const auto& [name, value] : values_) {
      ::unsetenv(name.c_str());
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::map<std::string, std::string> values_;
};

TEST_CASE("limits of the process are read as they are", "[host_facts]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{123, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const HostFacts limited = read_host_facts();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(limited.open_files == 123);
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &files) == 0);
  const bool unlimited = files.rlim_cur == RLIM_INFINITY;
  CHECK((limited.file_bytes == HostFacts::kUnlimited) == unlimited);
}

TEST_CASE("the cores of this process may be fewer than those of the machine", "[host_facts]") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  int first = 0;
  while (CPU_ISSET(first, &before) == 0) {
    ++first;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const HostFacts bound = read_host_facts();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(bound.usable_cores == 1);
  CHECK(read_host_facts().usable_cores == CPU_COUNT(&before));
  const std::vector<std::string> known = {"avx512f", "avx2", "default"};
  CHECK(std::find(known.begin(), known.end(), bound.instructions) != known.end());
}

TEST_CASE("folders are where the process stands and where TMPDIR says", "[host_facts]") {
  const test::TempDir folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  {
    const Variables variables(
        std::map<std::string, std::string>{{"TMPDIR", (folder.path() / "none").string()}});
    const HostFacts facts = read_host_facts();
    CHECK(facts.output == folder.path().string());
    CHECK(facts.output_writable);
    CHECK(facts.temporary == "$TMPDIR");
    CHECK_FALSE(facts.temporary_writable);
  }
  const Variables variables(std::map<std::string, std::string>{{"TMPDIR", folder.path().string()}});
  const HostFacts facts = read_host_facts();
  fs::current_path(before);
  CHECK(facts.temporary == folder.path().string());
  CHECK(facts.temporary_writable);
}

TEST_CASE("variables of launchers and of the network are judged", "[host_facts]") {
  CHECK(read_host_facts().launch_problem.empty());
  CHECK(read_host_facts().interface_known);
  {
    const Variables partial(std::map<std::string, std::string>{{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    const HostFacts facts = read_host_facts();
    CHECK(facts.launch_problem.find("MASTER_ADDR") != std::string::npos);
    CHECK(facts.environment.at("WORLD_SIZE") == "2");
  }
  {
    const Variables loopback(std::map<std::string, std::string>{{"GLOO_SOCKET_IFNAME", "lo"}});
    CHECK(read_host_facts().interface_known);
  }
  const Variables missing(
      std::map<std::string, std::string>{{"GLOO_SOCKET_IFNAME", "no-such-if0"}});
  CHECK_FALSE(read_host_facts().interface_known);
}

TEST_CASE("all processes together have no more memory than the machine", "[doctor]") {
  const HostFacts facts = read_host_facts();
  CHECK(usable_memory() == std::min(facts.memory_bytes, facts.memory_limit_bytes));
  CHECK(usable_memory() >= facts.available_bytes / 2);
}

TEST_CASE("the network of this machine has a range of ports and a name", "[host_facts]") {
  const HostFacts facts = read_host_facts();
  CHECK(facts.host == host_name());
  CHECK(facts.first_port > 1024);
  CHECK(facts.last_port > facts.first_port);
  CHECK(facts.last_port <= 65535);
  CHECK(facts.system.starts_with("Linux "));
}

}  // namespace
}  // namespace colossal
