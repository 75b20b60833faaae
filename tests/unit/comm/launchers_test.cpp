// Are the launchers of clusters understood, and is each of their mistakes explained?
#include "comm/detail/launchers.hpp"

#include "core/error.hpp"
#include "launcher_variables.hpp"
#include "support/catch.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

using colossal::detect_launch;
using colossal::Error;
using colossal::LaunchFlags;
using colossal::LaunchOptions;
using colossal::detail::slurm_hosts;
using colossal::detail::slurm_tasks;
using colossal::test::Environment;
using colossal::test::Variables;

namespace {

using Hosts = std::vector<std::string>;

LaunchOptions launch_of(const Variables& variables, const LaunchFlags& flags = {}) {
  const Environment environment(variables);
  return detect_launch(flags);
}

/// "id: message", or "none".
std::string failure_of(const Variables& variables, const LaunchFlags& flags = {}) {
  try {
    static_cast<void>(launch_of(variables, flags));
  } catch (const Error& error) {
    return fmt::format("{}: {}", error.id(), error.what());
  }
  return "none";
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

/// Process 3 of 4 of mpirun on one machine.
Variables openmpi() {
  return {{"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
          {"PMIX_NAMESPACE", "prterun-host-17@1"}};
}

Variables pmi() {
  return {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}};
}

/// Task 5 of 7 of srun on two machines.
Variables slurm() {
  return {{"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_PROCID", "5"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
          {"SLURM_STEP_NODELIST", "n[01-02]"}};
}

std::string id_of_hosts(const std::string& list) {
  try {
    static_cast<void>(slurm_hosts(list));
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find(list) != std::string::npos);
    return std::string(error.id());
  }
  return "none";
}

}  // namespace

TEST_CASE("Slurm's host lists keep zeros and take several brackets", "[launchers]") {
  CHECK(slurm_hosts("n[001-003,010],gpu-a[1-2]b") ==
        Hosts{"n001", "n002", "n003", "n010", "gpu-a1b", "gpu-a2b"});
  CHECK(slurm_hosts("n[01-03,07],gpu1") == Hosts{"n01", "n02", "n03", "n07", "gpu1"});
  CHECK(slurm_hosts("one") == Hosts{"one"});
  CHECK(slurm_hosts("a,b,c") == Hosts{"a", "b", "c"});
  CHECK(slurm_hosts("r[1-2]n[08-10]") ==
        Hosts{"r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"});
  CHECK(slurm_hosts("r[1,3]-[0-1]-x") == Hosts{"r1-0-x", "r1-1-x", "r3-0-x", "r3-1-x"});
  CHECK(slurm_hosts("n[9-11]") == Hosts{"n9", "n10", "n11"});  // no zeros: no fixed width
  CHECK(slurm_hosts("n[009-011]") == Hosts{"n009", "n010", "n011"});
  CHECK(slurm_hosts("n[5]") == Hosts{"n5"});
  CHECK(slurm_hosts("[1-2]") == Hosts{"1", "2"});
  CHECK(slurm_hosts("n[0-999]x[0-9]").size() == 10'000);
}

TEST_CASE("host lists that are none are refused", "[launchers]") {
  for (const char* list : {"",
                           ",a",
                           "a,,b",
                           "a,",
                           "n[1",
                           "n1]",
                           "n[1-2]]",
                           "n[[1]]",
                           "n[]",
                           "n[a-b]",
                           "n[3-1]",
                           "n[1-]",
                           "n[-2]",
                           "n[1-2-3]",
                           "n[1,,2]",
                           "n[1x]",
                           "n[0-999999999]",
                           "n[0-9999]x[0-9999]",
                           "n[1-99999999999]"}) {
    INFO(list);
    CHECK(id_of_hosts(list) == "launch-env");
  }
}

TEST_CASE("every host list that is written comes back", "[launchers]") {
  // All ranges of two bounds and a width, written as Slurm does.
  for (int width = 1; width <= 4; ++width) {
    for (int first : {0, 1, 8, 99}) {
      for (int count : {1, 2, 13}) {
        const std::string list =
            fmt::format("a{{}}[{:0{}}-{:0{}}]b", first, width, first + count - 1, width);
        Hosts wanted;
        for (int i = first; i < first + count; ++i) {
          wanted.push_back(fmt::format("a{{}}{:0{}}b", i, width));
        }
        INFO(list);
        // A bound that is wider than the width has no zeros before it.
        CHECK(slurm_hosts(list) == wanted);
      }
    }
  }
}

TEST_CASE("Slurm's numbers of tasks are repeated as they say", "[launchers]") {
  CHECK(slurm_tasks("4") == std::vector<int>{4});
  CHECK(slurm_tasks("4(x2),3") == std::vector<int>{4, 4, 3});
  CHECK(slurm_tasks("1(x3)") == std::vector<int>{1, 1, 1});
  for (const char* list :
       {"", "0", "x", "4(x)", "4(2)", "4(x2", "4x2", "4(x0)", "4,", "-4", "1(x99999999)"}) {
    INFO(list);
    CHECK_THROWS_AS(slurm_tasks(list), Error);
  }
}

TEST_CASE("Open MPI on one machine meets at a port of the job", "[launchers]") {
  const LaunchOptions options = launch_of(openmpi());
  CHECK(options.mode == "openmpi");
  CHECK(options.rank == 3);
  CHECK(options.world_size == 4);
  CHECK(options.local_rank == 3);
  CHECK(options.local_world_size == 4);
  CHECK(options.address == "127.0.0.1");
  CHECK(options.port >= 20000);
  CHECK(options.port < 32768);  // where ports of outgoing connections begin
  CHECK_FALSE(options.store_is_hosted);
  CHECK(options.origin == "OMPI_COMM_WORLD_SIZE=4 set by mpirun");
  // The same for all ranks of the job, another one for another job.
  CHECK(launch_of(with(openmpi(), {{"OMPI_COMM_WORLD_RANK", "0"}})).port == options.port);
  CHECK(launch_of(with(openmpi(), {{"PMIX_NAMESPACE", "prterun-host-18@1"}})).port != options.port);
  // Without a name of the job: the processes' common parent.
  const Variables nameless = without(openmpi(), "PMIX_NAMESPACE");
  CHECK(launch_of(nameless).port == launch_of(nameless).port);
  CHECK(launch_of(nameless).port >= 20000);
  // Of one machine, MASTER_ADDR is some container's: 127.0.0.1 is always right.
  CHECK(launch_of(with(openmpi(), {{"MASTER_ADDR", "elsewhere"}})).address == "127.0.0.1");
}

TEST_CASE("on several machines somebody must say where rank 0 is", "[launchers]") {
  const Variables two =
      with(openmpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  const std::string failure = failure_of(two);
  CHECK(
      failure.starts_with("launch-env: OMPI_COMM_WORLD_SIZE=4 set by mpirun, on several machines"));
  CHECK(failure.find("on which one rank 0 runs") != std::string::npos);
  CHECK(failure.find("--rendezvous file:PATH") != std::string::npos);
  CHECK(launch_of(with(two, {{"MASTER_ADDR", "n1"}})).address == "n1");
  CHECK(launch_of(with(two, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "77"}})).port == 77);
  LaunchFlags flags;
  flags.master_addr = "n2";
  flags.master_port = 78;
  const LaunchOptions told = launch_of(with(two, {{"MASTER_ADDR", "n1"}}), flags);
  CHECK(told.address == "n2");
  CHECK(told.port == 78);
  LaunchFlags file;
  file.rendezvous = "file:/shared/here";
  CHECK(launch_of(two, file).rendezvous_file == "/shared/here");
  CHECK(launch_of(two, file).job == "openmpi prterun-host-17@1");
  const Variables no_port = without(with(two, {{"MASTER_ADDR", "n1"}}), "PMIX_NAMESPACE");
  CHECK(failure_of(no_port).find("on which port rank 0 listens") != std::string::npos);
  CHECK(failure_of(with(two, {{"MASTER_PORT", "0"}})).find("MASTER_PORT='0'") != std::string::npos);
}

TEST_CASE("PMI tells the place on the machine, or is Slurm's", "[launchers]") {
  const LaunchOptions options = launch_of(pmi());
  CHECK(options.mode == "pmi");
  CHECK(options.rank == 1);
  CHECK(options.world_size == 2);
  CHECK(options.local_rank == 1);
  CHECK(options.address == "127.0.0.1");
  CHECK(options.port >= 20000);
  CHECK(failure_of(without(pmi(), "MPI_LOCALRANKID")).find("MPI_LOCALRANKID not set") !=
        std::string::npos);
  // srun --mpi=pmi2
  const Variables both = with(slurm(), {{"PMI_SIZE", "7"}, {"PMI_RANK", "5"}});
  CHECK(launch_of(both).mode == "slurm");
  CHECK(launch_of(both, {.mode = "slurm"}).rank == 5);
}

TEST_CASE("Slurm's step gives ranks, the first host and a port", "[launchers]") {
  const LaunchOptions options = launch_of(slurm());
  CHECK(options.mode == "slurm");
  CHECK(options.rank == 5);
  CHECK(options.world_size == 7);
  CHECK(options.local_rank == 1);
  CHECK(options.local_world_size == 3);
  CHECK(options.address == "n01");
  CHECK(options.port == 20000 + (1234 * 97 + 2) % 12768);
  CHECK(options.origin == "7 tasks of Slurm step 1234.2");
  CHECK(options.job == "slurm 1234.2");
  CHECK(launch_of(slurm(), {.master_port = 4711}).port == 4711);
  CHECK(launch_of(with(slurm(), {{"MASTER_PORT", "4712"}})).port == 4712);
  const Variables one = with(slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "7"}});
  CHECK(launch_of(one).address == "127.0.0.1");
  CHECK(launch_of(without(one, "SLURM_STEP_NODELIST")).local_world_size == 7);
  const Variables old = without(without(slurm(), "SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NODELIST");
  CHECK(launch_of(with(old, {{"SLURM_NODELIST", "m[7-8]"}})).address == "m7");
}

TEST_CASE("what srun does not say is named", "[launchers]") {
  for (const char* name :
       {"SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NODEID"}) {
    INFO(name);
    CHECK(failure_of(without(slurm(), name)).find(std::string(name) + " not set") !=
          std::string::npos);
  }
  CHECK(failure_of(with(slurm(), {{"SLURM_PROCID", "7"}})).find("SLURM_PROCID='7'") !=
        std::string::npos);
  CHECK(failure_of(with(slurm(), {{"SLURM_STEP_NODELIST", "n[1"}})).find("brackets") !=
        std::string::npos);
  CHECK(
      failure_of(with(slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "4,x"}})).find("'x' is no number") !=
      std::string::npos);
}

TEST_CASE("a batch script without srun is one process and is warned", "[launchers]") {
  const Variables script = {{"SLURM_JOB_ID", "9"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}};
  const std::string warning =
      "[slurm-no-srun] running 1 process of an allocation of 8 tasks; start with srun";
  const LaunchOptions options = launch_of(script);
  CHECK(options.mode == "single");
  CHECK(options.world_size == 1);
  CHECK(options.warning == warning);
  // Newer ones give the script a step of its own, with a number no srun has.
  CHECK(launch_of(with(script, {{"SLURM_STEP_ID", "4294967291"}})).warning == warning);
  CHECK(launch_of(with(script, {{"SLURM_NTASKS", "1"}})).warning.empty());
  const Variables step = with(script, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  CHECK(launch_of(step).mode == "single");
  CHECK(launch_of(step).warning.empty());
}

TEST_CASE("the first launcher that is found counts, unless --launch names one", "[launchers]") {
  const Variables torchrun = {{"RANK", "0"},
                              {"WORLD_SIZE", "1"},
                              {"LOCAL_RANK", "0"},
                              {"LOCAL_WORLD_SIZE", "1"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", "1"}};
  Variables all = with(with(with(torchrun, openmpi()), pmi()), slurm());
  CHECK(launch_of(all).mode == "torchrun");
  for (const char* mode : {"single", "torchrun", "openmpi", "pmi", "slurm"}) {
    CHECK(launch_of(all, {.mode = mode}).mode == mode);
  }
  all = with(with(openmpi(), pmi()), slurm());
  CHECK(launch_of(all).mode == "openmpi");
  CHECK(launch_of(with(pmi(), slurm())).mode == "pmi");
  CHECK(launch_of({}, {.mode = "single"}).mode == "single");
  CHECK(failure_of({}, {.mode = "openmpi"}).find("OMPI_COMM_WORLD_SIZE") != std::string::npos);
  CHECK(failure_of({}, {.mode = "slurm"}).find("SLURM_STEP_NUM_TASKS") != std::string::npos);
  CHECK(failure_of({}, {.mode = "torchrun"}).find("RANK") != std::string::npos);
  CHECK(failure_of({}, {.mode = "mpirun"}).starts_with("bad-launch: --launch 'mpirun'"));
}

TEST_CASE("flags that this launcher has no use for are refused", "[launchers]") {
  CHECK(failure_of({}, {.master_addr = "n1"}).starts_with("launch-flag: "));
  CHECK(failure_of({}, {.master_port = 5}).find("launch mode single") != std::string::npos);
  CHECK(failure_of({}, {.rendezvous = "file:/x"}).starts_with("launch-flag: "));
  CHECK(failure_of(slurm(), {.rendezvous = "/x"}).starts_with("bad-rendezvous: --rendezvous '/x'"));
  CHECK(failure_of(slurm(), {.rendezvous = "file:"}).starts_with("bad-rendezvous: "));
}
