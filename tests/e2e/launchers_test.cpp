// Does the real program train under the variables of mpirun, mpiexec and srun?
#include "e2e/program.hpp"
#include "e2e/shell.hpp"
#include "support/free_port.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
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

/// A test machine may be busy with other tests.
constexpr double kBusySeconds = 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Two ranks under the torchrun of PyTorch, which must end with `code`; returns what was printed.
std::string torchrun(int code, const Arguments& arguments, const std::string& fault = "") {
  std::string line = fault.empty() ? "" : fmt::format("COLOSSAL_FAULT={} ", fault);
  line += fmt::format(
      "OMP_NUM_THREADS=1 timeout 120 '{}' --standalone --nproc-per-node 2 --no-python '{}'",
      (fs::path(COLOSSAL_PYTHON).parent_path() / "torchrun").string(),
      COLOSSAL_BINARY);
  for (const std::string& argument : arguments) {
    line += " '" + argument + "'";
  }
  return shell("bash", fmt::format("{}\n[ $? = {} ]\n", line, code));
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
  CHECK(count(outcome.err,
              "warning: [slurm-no-srun] running 1 process of an allocation of 4 tasks") == 1);
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

TEST_CASE("the end of the job ends a run while it can still save", "[launchers]") {
  const TempDir folder;
  const auto job_ending_in = [](long seconds) {
    return with({{"SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + seconds)}});
  };
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    const Arguments more = {"--nproc", processes, "--use-job-deadline"};
    const Outcome outcome = run(train_endless(run_dir, more), job_ending_in(5));
    CHECK(outcome.code == 75);
    CHECK(last_line(outcome).at("reason") == "stopped by the end of the job");
    run_expecting(0, {"inspect", run_dir.string(), "--verify"});
    CHECK(count(outcome.err, "deadline  ") == 1);
    CHECK(last_line(outcome).at("seconds").get<double>() <= 6);
  }
  // The earlier of both counts.
  const Outcome first = run(
      train_endless(folder.path() / "both", {"--use-job-deadline", "--set", "run.max_time=0.01s"}),
      job_ending_in(60));
  CHECK(first.code == 75);
  CHECK(last_line(first).at("reason") == "stopped by run.max_time");
  // Without the option the variable means nothing; with it, it must be there.
  const fs::path other = folder.path() / "other";
  run_expecting(0, train_tiny(other / "a"), job_ending_in(-60));
  for (const char* time : {"", "soon", "-3"}) {
    const Outcome outcome = run_expecting(
        9, train_tiny(other / "b", {"--use-job-deadline"}), with({{"SLURM_JOB_END_TIME", time}}));
    CHECK(count(outcome.err, "[job-deadline]") == 1);
  }
  const Outcome absent = run_expecting(9, train_tiny(other / "b", {"--use-job-deadline"}));
  CHECK(count(absent.err, "SLURM_JOB_END_TIME is not set [job-deadline]") == 1);
  CHECK_FALSE(fs::exists(other / "b"));
}

TEST_CASE("eval runs under every launcher as it does alone", "[launchers]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));
  const Arguments eval = {"eval", "--checkpoint", folder.path().string()};
  Json alone = last_line(run_expecting(0, eval));
  const auto on_two = [&](const auto& setting, const Arguments& more) {
    Arguments arguments = eval;
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program second(arguments, setting(1));
    Program first(arguments, setting(0));
    const Outcome rank_0 = first.wait();
    const Outcome rank_1 = second.wait();
    INFO(rank_0.err << rank_1.err);
    REQUIRE(rank_0.code == 0);
    REQUIRE(rank_1.code == 0);
    CHECK(rank_1.out.empty());
    Json result = last_line(rank_0);
    const auto loss = alone.at("loss").get<double>();
    CHECK(std::abs(result.at("loss").get<double>() - loss) <= 1e-6 * loss);
    CHECK(result.at("samples") == alone.at("samples"));
    CHECK(result.at("tokens") == alone.at("tokens"));
  };
  const std::string job = fmt::format("eval-{}", ::getpid());
  const int port = free_port();
  on_two([&](int rank) { return with(openmpi(rank, 2, job)); }, {});
  on_two([&](int rank) { return with(openmpi(rank, 2, job + "-f")); },
         {"--rendezvous", "file:" + (folder.path() / "meet").string()});
  on_two([&](int rank) { return with(slurm(rank, 2, ::getpid())); }, {"--launch", "slurm"});
  on_two([&](int rank) { return torchrun_rank(rank, 2, port); }, {"--launch", "torchrun"});
  // a job's processes that are told to be alone evaluate alone
  Arguments single = eval;
  single.insert(single.end(), {"--launch", "single"});
  CHECK(last_line(run_expecting(0, single, with(openmpi(1, 2, "x")))).at("loss") ==
        alone.at("loss"));
  CHECK(count(run_expecting(2, {"eval", "--checkpoint", "x", "--launch", "mpi"}).err, "[usage]") ==
        1);
}

TEST_CASE("ranks of mpirun tell plan and configuration once (C6 row 83)", "[launchers]") {
  const TempDir folder;
  const std::string job = fmt::format("once-{}", ::getpid());
  std::vector<std::unique_ptr<Program>> ranks;
  const Arguments arguments = train_tiny(
      folder.path(), {"--set", "train.steps=9", "--set", "train.steps=9", "--launch", "openmpi"});
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<Program>(arguments, with(openmpi(rank, 4, job))));
  }
  std::string told = "\n";
  for (const auto& rank : ranks) {
    const Outcome outcome = rank->wait();
    CHECK(outcome.code == 0);
    told += outcome.err;
  }
  INFO(told);
  CHECK(count(told, "\nplan  ") == 1);
  CHECK(count(told, "\nbatch  ") == 1);
  CHECK(count(told, "[override-shadowed]") == 1);  // said before the ranks meet
}

TEST_CASE("torchrun itself starts, feeds and ends our ranks", "[launchers]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "spawn", {"--nproc", "2"}));
  const fs::path run_dir = folder.path() / "torchrun";
  torchrun(0, train_tiny(run_dir));
  require_same_losses(folder.path() / "spawn", run_dir, 0);
  CHECK(Json::parse(read_file(run_dir / "env.json")).at("launch") == "torchrun");
  // a rank that throws ends all of them, soon
  const fs::path failed = folder.path() / "failed";
  const std::string told = torchrun(1, train_endless(failed), "rank=1,step=3,kind=throw");
  const double thrown = Json::parse(read_file(failed / "abort.json")).at("time").get<double>();
  CHECK(seconds_now() - thrown < 10 + kBusySeconds);
  CHECK(count(told, "[rank 1] error: fault asked for at step 3 [fault-thrown]") >= 1);
  CHECK(Json::parse(read_file(failed / "abort.json")).at("rank") == 1);
}
