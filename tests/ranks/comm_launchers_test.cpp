// Do real processes meet under the variables of mpirun, mpiexec and srun, and by a file?
#include "process.hpp"
#include "support/catch.hpp"
#include "support/free_port.hpp"

#include <fstream>
#include <functional>
#include <memory>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <vector>

using colossal::test::count_of;
using colossal::test::free_port;
using colossal::test::Process;
using colossal::test::TempDir;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using Texts = std::vector<std::string>;
using Ranks = std::vector<std::unique_ptr<Process>>;

/// A job's name that no other test has at the same time: its port follows from it.
std::string job() {
  static int number = 0;
  return std::to_string(::getpid()) + "-" + std::to_string(++number);
}

Texts openmpi(int rank, int size, const std::string& name) {
  const std::string r = std::to_string(rank);
  const std::string n = std::to_string(size);
  return {"OMPI_COMM_WORLD_SIZE=" + n,
          "OMPI_COMM_WORLD_RANK=" + r,
          "OMPI_COMM_WORLD_LOCAL_SIZE=" + n,
          "OMPI_COMM_WORLD_LOCAL_RANK=" + r,
          "PMIX_NAMESPACE=" + name};
}

/// Two machines of one process each, both this one.
Texts openmpi_apart(int rank, const std::string& name) {
  return {"OMPI_COMM_WORLD_SIZE=2",
          "OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
          "OMPI_COMM_WORLD_LOCAL_SIZE=1",
          "OMPI_COMM_WORLD_LOCAL_RANK=0",
          "PMIX_NAMESPACE=" + name};
}

Texts pmi(int rank, int size) {
  const std::string r = std::to_string(rank);
  const std::string n = std::to_string(size);
  return {"PMI_SIZE=" + n, "PMI_RANK=" + r, "MPI_LOCALNRANKS=" + n, "MPI_LOCALRANKID=" + r};
}

Texts slurm(int rank, int size, int job_id) {
  const std::string r = std::to_string(rank);
  const std::string n = std::to_string(size);
  return {"SLURM_JOB_ID=" + std::to_string(job_id),
          "SLURM_STEP_ID=0",
          "SLURM_PROCID=" + r,
          "SLURM_LOCALID=" + r,
          "SLURM_STEP_NUM_TASKS=" + n,
          "SLURM_STEP_TASKS_PER_NODE=" + n,
          "SLURM_STEP_NODELIST=node[01-01]"};
}

std::unique_ptr<Process> start(Texts environment, const Texts& flags = {}) {
  environment.emplace_back("OMP_NUM_THREADS=1");
  Texts arguments{COLOSSAL_LAUNCH_PROBE, "0", "steps"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return std::make_unique<Process>(arguments, environment);
}

void require_success(const Ranks& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto code = ranks[rank]->wait(60s);
    INFO("rank " << rank << ": " << ranks[rank]->err());
    REQUIRE(code == 0);
    CHECK(ranks[rank]->out() == (rank == 0 ? "{\"exit\": 0}\n" : ""));
    CHECK(ranks[rank]->err().empty());
  }
}

}  // namespace

TEST_CASE("ranks of mpirun, mpiexec and srun meet on one machine", "[launchers]") {
  const std::string name = job();
  const int size = 3;
  const std::vector<std::function<Texts(int)>> launchers = {
      [&](int rank) { return openmpi(rank, size, name); },
      [&](int rank) { return pmi(rank, size); },
      [&](int rank) { return slurm(rank, size, ::getpid()); }};
  for (const auto& variables : launchers) {
    Ranks ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(start(variables(rank)));
    }
    require_success(ranks);
  }
}

TEST_CASE("two jobs of mpirun at once do not meet", "[launchers]") {
  Ranks first;
  Ranks second;
  const std::string one = job();
  const std::string two = job();
  for (int rank = 0; rank < 2; ++rank) {
    first.push_back(start(openmpi(rank, 2, one)));
    second.push_back(start(openmpi(rank, 2, two)));
  }
  require_success(first);
  require_success(second);
}

TEST_CASE("a rank that fails under mpirun stops the others", "[launchers]") {
  const std::string name = job();
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Texts variables = openmpi(rank, 2, name);
    variables.emplace_back("COLOSSAL_FAULT=rank=1,step=1,kind=throw");
    ranks.push_back(start(variables));
  }
  REQUIRE(ranks[1]->wait(60s) == 1);
  REQUIRE(ranks[0]->wait(10s) == 8);
  CHECK(count_of(ranks[0]->err() + ranks[1]->err(), "error: ") == 1);
}

TEST_CASE("--master-addr and --master-port say where rank 0 is", "[launchers]") {
  const std::string name = job();
  const Texts flags = {"--master-addr=127.0.0.1", "--master-port=" + std::to_string(free_port())};
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(start(openmpi(rank, 2, name), flags));
  }
  require_success(ranks);
}

TEST_CASE("ranks that share a disk only meet by a file, which goes", "[launchers]") {
  const TempDir folder;
  const fs::path file = folder.path() / "address";
  const std::string name = job();
  const Texts flags = {"--rendezvous=file:" + file.string()};

  SECTION("of nobody else") {}
  SECTION("where another job has left its own") {
    std::ofstream(file) << "openmpi another\n127.0.0.1\n1\n";
  }
  SECTION("where an earlier start of this job has died") {
    std::ofstream(file) << "openmpi " << name << "\n127.0.0.1\n" << free_port() << "\n";
  }
  SECTION("where something else lies") {
    std::ofstream(file) << "\n\n\nx";
  }
  Ranks ranks;  // all on one machine, as of different ones would not start here
  ranks.push_back(nullptr);
  ranks.push_back(start(openmpi(1, 2, name), flags));
  REQUIRE_FALSE(ranks[1]->wait(700ms).has_value());  // it waits for rank 0
  ranks[0] = start(openmpi(0, 2, name), flags);
  require_success(ranks);
  CHECK_FALSE(fs::exists(file));
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 0);
}

TEST_CASE("a file that nobody writes, or nobody can, is named", "[launchers]") {
  const TempDir folder;
  const std::string name = job();
  const std::string missing = (folder.path() / "no" / "folder").string();
  const auto first = start(openmpi(0, 2, name), {"--rendezvous=file:" + missing});
  REQUIRE(first->wait(60s) == 9);
  CHECK(count_of(first->err(), "[rendezvous-file]") == 1);
  CHECK(count_of(first->err(), "No such file or directory") == 1);
  CHECK(count_of(first->err(), missing) >= 1);
  const std::string file = (folder.path() / "address").string();
  const auto second = start(openmpi(1, 2, name), {"--rendezvous=file:" + file, "--init=2"});
  REQUIRE(second->wait(60s) == 8);
  CHECK(count_of(second->err(), "rank 0 was not found by " + file + " within 2 s") == 1);
  CHECK(count_of(second->err(), "[rendezvous]") == 1);
}

TEST_CASE("on several machines without an address the start is refused", "[launchers]") {
  const auto rank = start(openmpi_apart(0, job()));
  REQUIRE(rank->wait(60s) == 9);
  CHECK(count_of(rank->err(), "[launch-env]") == 1);
  CHECK(count_of(rank->err(), "--rendezvous file:PATH") == 1);
}

TEST_CASE("ranks of two machines meet at MASTER_ADDR", "[launchers]") {
  // Both are this one, so that only the group check could tell: their local ranks are equal.
  const std::string name = job();
  const std::string port = std::to_string(free_port());
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Texts variables = openmpi_apart(rank, name);
    variables.emplace_back("MASTER_ADDR=localhost");
    variables.push_back("MASTER_PORT=" + port);
    ranks.push_back(start(variables));
  }
  for (const auto& rank : ranks) {
    CHECK(rank->wait(60s) == 8);
  }
  const std::string told = ranks[0]->err() + ranks[1]->err();
  INFO(told);
  CHECK(count_of(told, "[local-rank]") == 1);
}
