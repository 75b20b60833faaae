// Does `doctor` try out this machine for real, and fail with exit code 9 where a run would fail?
#include "e2e/program.hpp"

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

Json finding(const Json& report, const std::string& topic) {
  for (const Json& one : report.at("findings")) {
    if (one.at("topic") == topic) {
      return one;
    }
  }
  FAIL("no finding about " << topic);
  return {};
}

}  // namespace

TEST_CASE("doctor reports on this machine and sums a tensor over real processes", "[doctor]") {
  const Outcome outcome = run_expecting(0, {"doctor", "--nproc", "3", "--json"});
  const Json report = Json::parse(outcome.out);
  CHECK(report.at("verdict") != "fail");
  const Json network = finding(report, "network");
  CHECK(network.at("verdict") == "ok");
  const auto detail = network.at("detail").get<std::string>();
  CHECK(count(detail, "64 MiB over 3 processes (gloo)") == 1);
  CHECK(count(detail, "GB/s") == 1);
  CHECK(finding(report, "torch").at("verdict") == "ok");
  CHECK(finding(report, "hdf5").at("verdict") == "ok");
  CHECK(finding(report, "checkpoint").at("verdict") == "ok");
  CHECK(outcome.err.empty());
}

TEST_CASE("the report for people has a line for every topic and a count", "[doctor]") {
  const Outcome outcome = run_expecting(0, {"doctor", "--nproc", "1"});
  for (const char* topic : {"program",
                            "torch",
                            "hdf5",
                            "cpu",
                            "memory",
                            "gpu",
                            "limits",
                            "shm",
                            "clock",
                            "ports",
                            "disk",
                            "environment",
                            "checkpoint",
                            "network"}) {
    INFO(outcome.out);
    CHECK(count(outcome.out, std::string("  ") + topic + "  ") == 1);
  }
  CHECK(count(outcome.out, " ok, ") == 1);
  CHECK(count(outcome.out, " 0 fail\n") == 1);
}

TEST_CASE("half a launcher's environment fails with exit code 9", "[doctor]") {
  const Outcome outcome =
      run_expecting(9, {"doctor"}, {.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}}});
  CHECK(count(outcome.out, "fail  environment") == 1);
  CHECK(count(outcome.out, "MASTER_ADDR") == 1);
  CHECK(count(outcome.out, "fix: unset RANK and WORLD_SIZE") == 1);
  CHECK(count(outcome.out, "ok    network") == 1);  // its processes have variables of their own
}

TEST_CASE("a folder for temporary files that does not exist fails with exit code 9", "[doctor]") {
  const Outcome outcome =
      run_expecting(9, {"doctor", "--json"}, {.environment = {{"TMPDIR", "/does/not/exist"}}});
  CHECK(finding(Json::parse(outcome.out), "disk").at("verdict") == "fail");
}

TEST_CASE("a network interface that does not exist fails, too many threads warn", "[doctor]") {
  const Outcome outcome = run_expecting(
      9, {"doctor", "--json", "--nproc", "1"}, {.environment = {{"GLOO_SOCKET_IFNAME", "nope7"}}});
  CHECK(finding(Json::parse(outcome.out), "environment").at("verdict") == "fail");
  const Outcome threads = run_expecting(
      0, {"doctor", "--json", "--nproc", "1"}, {.environment = {{"OMP_NUM_THREADS", "9999"}}});
  CHECK(finding(Json::parse(threads.out), "environment").at("verdict") == "warn");
}

TEST_CASE("a bad number of processes is a mistake of the command line", "[doctor]") {
  const Outcome outcome = run_expecting(2, {"doctor", "--nproc", "none"});
  CHECK(count(outcome.err, "[bad-nproc]") == 1);
  CHECK(count(run_expecting(2, {"doctor", "extra"}).err, "[unexpected-argument]") == 1);
}
