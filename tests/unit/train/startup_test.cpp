// Do the small decisions before a run hold: process counts, command lines, errors, agreement?
#include "train/startup.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/environment.hpp"
#include "train/foreign.hpp"
#include "train/rank_device.hpp"
#include "train/spawn.hpp"

#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {

TEST_CASE("--nproc is auto or a number", "[startup]") {
  CHECK(num_processes("auto", 0) == 1);
  CHECK(num_processes("auto", 4) == 4);
  CHECK(num_processes("3", 4) == 3);
  CHECK(num_processes("auto", 0, 8) == 8);  // one a GPU
  CHECK(num_processes("auto", 2, 8) == 2);
  for (const char* wrong : {"0", "-1", "2x", "", "1e3", "99999999999"}) {
    INFO(wrong);
    CHECK_THROWS_AS(num_processes(wrong, 0), Error);
  }
}

TEST_CASE("a collective library must move tensors of the device", "[startup]") {
  DeviceChoice gpu;
  gpu.device = at::Device(at::kCUDA, 0);
  check_backend(CommBackend::automatic, gpu);
  check_backend(CommBackend::nccl, gpu);
  check_backend(CommBackend::gloo, {});
  const auto id_of = [](CommBackend backend, const DeviceChoice& choice) {
    try {
      check_backend(backend, choice);
    } catch (const Error& error) {
      return std::string(error.id());
    }
    return std::string();
  };
  CHECK(id_of(CommBackend::gloo, gpu) == "comm-backend");
  CHECK(id_of(CommBackend::nccl, {}) == "gpu-only");
}

TEST_CASE("only a GPU can record steps", "[startup]") {
  DeviceChoice gpu;
  gpu.device = at::Device(at::kCUDA, 0);
  check_graph(CudaGraph::on, gpu);
  check_graph(CudaGraph::automatic, {});
  check_graph(CudaGraph::off, {});
  try {
    check_graph(CudaGraph::on, {});
    FAIL("a CPU recorded a step");
  } catch (const Error& error) {
    CHECK(error.id() == "gpu-only");
    CHECK(error.exit_code() == 3);
  }
}

TEST_CASE("only a GPU multiplies in tf32", "[startup]") {
  DeviceChoice gpu;
  gpu.device = at::Device(at::kCUDA, 0);
  check_precision(Precision::tf32, gpu);
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    check_precision(precision, {});
  }
  try {
    check_precision(Precision::tf32, {});
    FAIL("a CPU multiplied in tf32");
  } catch (const Error& error) {
    CHECK(error.id() == "gpu-only");
    CHECK(error.exit_code() == 3);
  }
}

TEST_CASE("children get the command line without --nproc", "[startup]") {
  const std::vector<std::string> expected = {"colossal-train", "train", "a.yaml", "--set", "x=1"};
  CHECK(without_nproc({"train", "--nproc", "2", "a.yaml", "--set", "x=1"}) == expected);
  CHECK(without_nproc({"train", "a.yaml", "--nproc=auto", "--set", "x=1"}) == expected);
}

TEST_CASE("children do not start children, nor start each other again", "[startup]") {
  const std::vector<std::string> expected = {"colossal-train", "train", "a.yaml"};
  CHECK(
      without_nproc({"train", "a.yaml", "--max-restarts", "3", "--restart-delay=1", "--nproc=2"}) ==
      expected);
  CHECK(without_nproc({"--max-restarts=3", "train", "--restart-delay", "0.5", "a.yaml"}) ==
        expected);
}

TEST_CASE("options go with their values, others stay whatever they look like", "[startup]") {
  using Arguments = std::vector<std::string>;
  CHECK(without_options({"--a", "1", "--b", "--a=2", "--ab", "x"}, {"--a"}) ==
        Arguments{"--b", "--ab", "x"});
  CHECK(without_options({"--set", "x=--a", "y"}, {"--a"}) == Arguments{"--set", "x=--a", "y"});
  CHECK(without_options({"--a"}, {"--a"}).empty());
  CHECK(without_options({}, {"--a"}).empty());
  CHECK(without_options({"--a", "--a", "b"}, {"--a"}) == Arguments{"b"});
}

TEST_CASE("a launcher inside a launcher is refused", "[startup]") {
  LaunchOptions launch;
  refuse_nested_launch(launch);
  launch.world_size = 2;
  CHECK_THROWS_AS(refuse_nested_launch(launch), Error);
}

TEST_CASE("foreign exceptions become errors with an exit code", "[startup]") {
  CHECK(to_error(std::bad_alloc()).exit_code() == 6);
  CHECK(to_error(std::runtime_error("DefaultCPUAllocator: can't allocate memory")).exit_code() ==
        6);
  const Error bug = to_error(std::runtime_error("odd"));
  CHECK(bug.exit_code() == 1);
  CHECK(bug.id() == "internal");
  CHECK(std::string(bug.what()).find("please report it with build 0.") != std::string::npos);
  try {
    fail(ErrorKind::data, "data-empty", "nothing");
  } catch (const std::exception& own) {
    CHECK(to_error(own).id() == "data-empty");
  }
}

TEST_CASE("rank 0's decision and its error reach the caller", "[startup]") {
  CHECK(decide_on_rank_0(Comm(), [] { return std::string("go"); }) == "go");
  try {
    static_cast<void>(decide_on_rank_0(Comm(), []() -> std::string {
      fail(ErrorKind::config, "output-in-use", "caf\xff");  // not UTF-8, as paths can be
    }));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.id() == "output-in-use");
    CHECK(error.exit_code() == 3);
  }
}

TEST_CASE("the environment names versions and the command", "[startup]") {
  const auto json = nlohmann::json::parse(environment_json({}, {"train", "a.yaml"}));
  CHECK(json.at("command") == nlohmann::json::array({"train", "a.yaml"}));
  CHECK(json.at("versions").at("hdf5").get<std::string>().starts_with("1."));
  CHECK(json.at("processors") > 0);
  const double age = seconds_since_process_start({});
  CHECK(age >= 0);
  CHECK(age < 600);
}

TEST_CASE("a launcher needs room for the checkpoint of a job's deadline", "[startup]") {
  const TempDir folder;
  const auto file = folder.path() / "huge.yaml";
  std::ofstream(file) << R"(
run: {device: cpu, output_dir: )"
                      << (folder.path() / "run").string() << R"(}
model: {type: gpt, num_layers: 2, hidden_size: 1048576, num_heads: 8, vocab_size: 256}
data: {type: synthetic, seq_length: 8, num_samples: 64}
train: {steps: 2, global_batch_size: 2, micro_batch_size: 1}
optimizer: {type: adamw, lr: 1e-3}
checkpoint: {at_end: false}
)";
  TrainOptions options;
  options.config.config = file.string();
  options.nproc = "2";
  CHECK(check_before_spawn(options).exit_code == 0);
  options.use_job_deadline = true;
  try {
    static_cast<void>(check_before_spawn(options));
    FAIL("no room was asked for");
  } catch (const Error& error) {
    CHECK(error.id() == "disk-low");
  }
}

}  // namespace colossal::test
