// Does the real program train under the variables of mpirun, mpiexec and srun?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <vector>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

using Variables = std::map<std::string, std::string>;

Setting with(const Variables& variables) {
  Setting setting;
  setting.environment = variables;
  return setting;
}

Variables openmpi(int rank, int size, const std::string& job) {
  const std::string r = std::to_string(rank);
  const std::string n = std::to_string(size);
  return {{"OMPI_COMM_WORLD_SIZE", n},
          {"OMPI_COMM_WORLD_RANK", r},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", n},
          {"OMPI_COMM_WORLD_LOCAL_RANK", r},
          {"PMIX_NAMESPACE", job}};
}

Variables slurm(int rank, int size, int job) {
  const std::string r = std::to_string(rank);
  const std::string n = std::to_string(size);
  return {{"SLURM_JOB_ID", std::to_string(job)},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", r},
          {"SLURM_LOCALID", r},
          {"SLURM_NTASKS", n},
          {"SLURM_STEP_NUM_TASKS", n},
          {"SLURM_STEP_TASKS_PER_NODE", n},
          {"SLURM_STEP_NODELIST", "n1"}};
}

}  // namespace

TEST_CASE("ranks of mpirun and srun train as those of --nproc do", "[launchers]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "spawn", {"--nproc", "2"}));
  const std::string job = fmt::format("job-{}", ::getpid());
  for (const bool mpi : {true, false}) {
    const fs::path run_dir = folder.path() / (mpi ? "openmpi" : "slurm");
    const auto variables = [&](int rank) {
      return with(mpi ? openmpi(rank, 2, job) : slurm(rank, 2, ::getpid()));
    };
    Program second(train_tiny(run_dir), variables(1));
    Program first(train_tiny(run_dir), variables(0));
    const Outcome rank_0 = first.wait();
    const Outcome rank_1 = second.wait();
    INFO(rank_0.err << rank_1.err);
    REQUIRE(rank_0.code == 0);
    REQUIRE(rank_1.code == 0);
    require_same_losses(folder.path() / "spawn", run_dir, 0);
    CHECK(count(rank_0.err, mpi ? "launch:   openmpi, 2 of 2 ranks" : "launch:   slurm, 2 of 2") ==
          1);
    CHECK(count(rank_0.err, "plan      tiny") == 1);
    CHECK(rank_1.out.empty());
    CHECK(rank_1.err.empty());
    CHECK(Json::parse(read_file(run_dir / "env.json")).at("launch") == (mpi ? "openmpi" : "slurm"));
  }
}

TEST_CASE("ranks of mpirun stop together on a signal to one", "[launchers]") {
  const TempDir folder;
  const std::string job = fmt::format("stop-{}", ::getpid());
  Program first(train_endless(folder.path()), with(openmpi(0, 2, job)));
  Program second(train_endless(folder.path()), with(openmpi(1, 2, job)));
  first.await_stderr("step  2/");
  second.send(SIGTERM);
  CHECK(first.wait().code == 75);
  CHECK(second.wait().code == 75);
}

TEST_CASE("a batch script that forgot srun trains alone and is warned", "[launchers]") {
  const TempDir folder;
  const Outcome outcome =
      run_expecting(0,
                    train_tiny(folder.path()),
                    with({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  CHECK(count(outcome.err, "warning: [slurm-no-srun] running 1 process of a 4-task allocation") ==
        1);
  CHECK(count(outcome.err, "start with srun") == 1);
  CHECK(count(outcome.err, "launch:   single") == 1);
}

TEST_CASE("tasks of srun that do not fit the configuration are refused", "[launchers]") {
  const TempDir folder;
  const Arguments arguments = train_tiny(folder.path(), {"--set", "parallel.data=2"});
  const Outcome first = run_expecting(3, arguments, with(slurm(0, 4, 9)));
  CHECK(count(first.err, "[world-size]") == 1);
  CHECK(count(first.err, "4 tasks of Slurm step 9.0") >= 1);
  CHECK(run_expecting(3, arguments, with(slurm(1, 4, 9))).err.empty());  // told once
}

TEST_CASE("--nproc inside another launcher is refused, unless it is alone", "[launchers]") {
  const TempDir folder;
  for (const Variables& variables : {openmpi(0, 2, "x"), slurm(0, 2, 1)}) {
    const Outcome nested =
        run_expecting(2, train_tiny(folder.path() / "a", {"--nproc", "2"}), with(variables));
    CHECK(count(nested.err, "[launch-nested]") == 1);
  }
  run_expecting(0, train_tiny(folder.path() / "b", {"--nproc", "2"}), with(openmpi(0, 1, "x")));
  run_expecting(0,
                train_tiny(folder.path() / "c", {"--nproc", "2", "--launch", "single"}),
                with(openmpi(0, 2, "x")));
}

TEST_CASE("wrong words about launchers are usage errors", "[launchers]") {
  const TempDir folder;
  struct Row {
    Arguments flags;
    const char* id;
  };
  for (const Row& row : {Row{{"--launch", "mpi"}, "[usage]"},
                         Row{{"--master-port", "0"}, "[usage]"},
                         Row{{"--master-port", "70000"}, "[usage]"},
                         Row{{"--master-addr", "n1"}, "[launch-flag]"},
                         Row{{"--rendezvous", "file:/x"}, "[launch-flag]"}}) {
    const Outcome outcome = run_expecting(2, train_tiny(folder.path(), row.flags));
    INFO(outcome.err);
    CHECK(count(outcome.err, row.id) == 1);
  }
  const Outcome file =
      run_expecting(2, train_tiny(folder.path(), {"--rendezvous", "x"}), with(openmpi(0, 2, "x")));
  CHECK(count(file.err, "[bad-rendezvous]") == 1);
  const Outcome absent = run_expecting(9, train_tiny(folder.path(), {"--launch", "openmpi"}));
  CHECK(count(absent.err, "[launch-env]") == 1);
  CHECK(count(absent.err, "OMPI_COMM_WORLD_SIZE") == 1);
}
