// Does `bench` measure this machine for real, and do the scripts that compare with PyTorch run both
// sides?
#include "e2e/program.hpp"

#include <cstdlib>
#include <set>
#include <sys/wait.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A gpt of a few thousand parameters: tests measure that measuring works.
Arguments tiny_bench(const Arguments& more) {
  Arguments arguments = {
      "bench", "--config", data_file("tiny.yaml"), "--steps", "2", "--format", "json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json report_of(const Arguments& more) {
  return Json::parse(run_expecting(0, tiny_bench(more)).out);
}

std::set<std::string> parts_of(const Json& report) {
  std::set<std::string> parts;
  for (const Json& row : report.at("rows")) {
    parts.insert(row.at("part").get<std::string>());
  }
  return parts;
}

/// Runs a script of scripts/bench on the built program; what it prints goes to `log`. Returns its
/// exit code.
int run_script(const std::string& script, const std::string& arguments, std::string& log) {
  const TempDir folder;
  const std::string file = (folder.path() / "log").string();
  const std::string command =
      fmt::format("'{}' '{}/scripts/bench/{}' --program '{}' --device cpu {} > '{}' 2>&1",
                  COLOSSAL_PYTHON,
                  COLOSSAL_SOURCE_DIR,
                  script,
                  COLOSSAL_BINARY,
                  arguments,
                  file);
  const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
  log = read_file(file);
  return WEXITSTATUS(status);
}

/// The numbers of a script that succeeds.
Json result_of(const std::string& script, const std::string& arguments) {
  const TempDir folder;
  const fs::path result = folder.path() / "result.json";
  std::string log;
  const int code =
      run_script(script, fmt::format("{} --json '{}'", arguments, result.string()), log);
  INFO(log);
  REQUIRE(code == 0);
  return Json::parse(read_file(result));
}

}  // namespace

TEST_CASE("bench measures everything that one process can", "[bench]") {
  const Outcome outcome = run_expecting(0, tiny_bench({}));
  const Json report = Json::parse(outcome.out);
  CHECK(outcome.err.empty());
  CHECK(parts_of(report) ==
        std::set<std::string>{"adam", "attention", "copy", "gemm", "kernels", "step"});
  CHECK(report.at("device") == "cpu");
  CHECK(report.at("processes") == 1);
  for (const Json& row : report.at("rows")) {
    INFO(row.dump());
    CHECK(row.at("median_seconds").get<double>() > 0);
    CHECK(row.at("least_seconds") <= row.at("median_seconds"));
    CHECK(row.at("rate").get<double>() ==
          Approx(row.at("amount").get<double>() / row.at("median_seconds").get<double>()));
    CHECK(row.at("samples") >= (row.at("part") == "step" ? 2 : 3));
    CHECK(row.contains("of_copy") ==
          (row.at("part") == "kernels" || (row.at("part") == "adam" && row.at("unit") == "bytes")));
  }
}

TEST_CASE("bench measures the parts that are named, in one order", "[bench]") {
  const Json report = report_of({"step", "attention"});
  REQUIRE(report.at("rows").size() == 3);
  CHECK(report["rows"][0]["part"] == "attention");
  CHECK(report["rows"][2]["part"] == "step");
  CHECK(report["rows"][2]["samples"] == 2);
}

TEST_CASE("processes are measured by what they say to each other and by their steps", "[bench]") {
  const Json report = report_of({"collectives", "step", "--nproc", "2"});
  CHECK(report.at("processes") == 2);
  CHECK(parts_of(report) == std::set<std::string>{"collectives", "step"});
  std::set<std::string> names;
  for (const Json& row : report.at("rows")) {
    names.insert(row.at("name").get<std::string>());
    CHECK(row.at("rate").get<double>() > 0);
  }
  for (const char* name : {"all-reduce", "all-gather", "reduce-scatter", "broadcast"}) {
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("a configuration decides what is measured, and --set beats it", "[bench]") {
  const Json report =
      report_of({"attention", "--set", "data.seq_length=24", "--set", "train.precision=fp64"});
  CHECK(report.at("precision") == "fp64");
  CHECK(report["rows"][0]["size"].get<std::string>().find("heads of 24 x") != std::string::npos);
}

TEST_CASE("bench for people is a table", "[bench]") {
  const Outcome outcome =
      run_expecting(0, {"bench", "attention", "--config", data_file("tiny.yaml")});
  CHECK(outcome.out.starts_with("bench on cpu; "));
  CHECK(count(outcome.out, "attention: causal forward") == 1);
  CHECK(count(outcome.out, "TFLOP/s") == 2);
}

TEST_CASE("bench refuses what it cannot measure", "[bench]") {
  CHECK(count(run_expecting(2, {"bench", "gem"}).err, "[usage]") == 1);
  CHECK(count(run_expecting(2, {"bench", "step", "--steps", "0"}).err, "[usage]") == 1);
  CHECK(count(run_expecting(2, {"bench", "collectives"}).err, "[bench-one-process]") == 1);
  CHECK(count(run_expecting(2, {"bench", "step", "--nproc", "none"}).err, "[bad-nproc]") == 1);
  CHECK(count(run_expecting(3, tiny_bench({"--set", "model.num_heads=5"})).err,
              "heads-divisible") == 1);
  const std::string mlp = std::string(COLOSSAL_SOURCE_DIR) + "/configs/mlp-cpu.yaml";
  const Outcome outcome = run_expecting(2, {"bench", "kernels", "--config", mlp});
  CHECK(count(outcome.err, "[bench-model]") == 1);
}

TEST_CASE("the comparison of steps on GPUs runs both sides, here on a cpu", "[bench][peers]") {
  const Json result = result_of(
      "gpu_vs_torch.py", "--case tiny:2 --peers eager --rounds 2 --warmup 2 --steps 4 --window 2");
  const Json& rows = result.at("results").at(0).at("rows");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["side"] == "eager");
  CHECK(rows[1]["side"] == "ours");
  for (const Json& row : rows) {
    CHECK(row.at("rounds") == 2);
    CHECK(row.at("tokens_per_s").get<double>() > 0);
    CHECK(row.at("least") <= row.at("most"));
  }
  CHECK(rows[0].at("ratio").get<double>() > 0);
  CHECK(result["results"][0]["notes"].empty());
}

TEST_CASE("losses are those of PyTorch from equal weights and data", "[bench][peers]") {
  const Json result = result_of("gpu_loss_curve.py", "--size tiny --steps 40 --batch 4");
  REQUIRE(result.at("results").size() == 2);
  for (const Json& curve : result["results"]) {
    INFO(curve.at("precision"));
    CHECK(curve.at("ours").size() == 40);
    CHECK(curve.at("passed") == true);
  }
  CHECK(result["results"][0].at("largest").get<double>() < 1e-5);  // fp32 on a cpu
}

TEST_CASE("weights that another machine has exported give the same curve", "[bench][peers]") {
  const TempDir folder;
  const std::string file = (folder.path() / "weights.safetensors").string();
  std::string log;
  CHECK(run_script("gpu_loss_curve.py", "--size tiny --export '" + file + "'", log) == 0);
  INFO(log);
  CHECK(count(log, "28 tensors, 120,576 parameters") == 1);
  const std::string curve = "--size tiny --steps 12 --batch 2 --precision fp32";
  CHECK(run_script("gpu_loss_curve.py", curve, log) == 1);  // too short to learn anything
  CHECK(count(log, "FAILED") == 1);
  CHECK(count(log, "weights: h5py, from our checkpoint") == 1);
  const std::size_t table = log.find("step, loss");
  const std::string own = log.substr(table, log.find("\nfp32: largest") - table);
  CHECK(run_script("gpu_loss_curve.py", curve + " --weights '" + file + "'", log) == 1);
  CHECK(count(log, own) == 1);
  // of another seed: not the weights that our run starts from
  CHECK(run_script("gpu_loss_curve.py", curve + " --seed 5 --weights '" + file + "'", log) == 1);
  CHECK(count(log, own) == 0);
}

TEST_CASE("a side that fails is named, and what cannot be compared is refused", "[bench][peers]") {
  std::string log;
  const std::string shape = "--case tiny:2 --rounds 1 --warmup 1 --steps 1 --window 1";
  CHECK(run_script("gpu_vs_torch.py", shape + " --peers eager --set model.num_heads=5", log) == 1);
  INFO(log);
  CHECK(count(log, "note: tiny:2: ours: ours ended with exit code 3") == 1);
  CHECK(count(log, "heads-divisible") >= 1);
  CHECK(run_script("gpu_vs_torch.py", "--case 9b:1", log) == 2);
  CHECK(count(log, "'9b:1' is not SIZE:BATCH") == 1);
  CHECK(run_script("gpu_vs_torch.py", shape + " --peers other", log) == 2);
  CHECK(run_script("gpu_vs_torch.py", shape + " --nproc 2 --peers eager", log) == 2);
  CHECK(run_script("gpu_vs_torch.py", "--case tiny:2 --steps 5 --window 2", log) == 2);
  CHECK(count(log, "--window 2 must divide --steps 5") == 1);
}

TEST_CASE("a peer that is another model is no peer", "[bench][peers]") {
  std::string log;
  CHECK(run_script("gpu_vs_torch.py",
                   "--case tiny:2 --rounds 1 --warmup 1 --steps 1 --window 1 --peers eager --set "
                   "model.num_layers=3",
                   log) == 1);
  INFO(log);
  CHECK(count(log, "not the same model") == 1);
}

TEST_CASE("without a configuration bench measures a small gpt", "[bench]") {
  const Json report = Json::parse(
      run_expecting(0, {"bench", "attention", "step", "--steps", "1", "--format", "json"}).out);
  CHECK(report.at("precision") == "fp32");
  CHECK(report["rows"][0]["size"] == "4 x 8 heads of 256 x 32");
  CHECK(report["rows"][2]["name"] == "gpt of 4.3M parameters");
  CHECK(report["rows"][2]["amount"] == 4 * 256);
}

TEST_CASE("steps are measured under every memory policy", "[bench]") {
  for (const char* policy : {"parallel.zero.stage=3",
                             "parallel.gemini={placement: cpu}",
                             "train.activation_checkpoint=full"}) {
    INFO(policy);
    const Json report = report_of({"step", "--nproc", "2", "--set", policy});
    REQUIRE(report.at("rows").size() == 1);
    CHECK(report["rows"][0]["samples"] == 2);
    CHECK(report["rows"][0]["amount"] == 8 * 16);
  }
}
