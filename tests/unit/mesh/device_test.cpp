// Does a rank get its own device, and a reason if it gets none?
#include "mesh/device.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <string>

namespace colossal {
namespace {

/// What a build for sm_90 sees on a machine with `count` H100.
GpuSurvey machine(int count) {
  GpuSurvey survey{.built_for = 90, .runtime = 13000, .driver = 13000, .gpus = {}};
  for (int i = 0; i < count; ++i) {
    survey.gpus.push_back({"H100", "GPU-" + std::to_string(i), 90, std::int64_t{80} << 30U});
  }
  return survey;
}

LaunchOptions rank_of_host(int local_rank) {
  LaunchOptions launch;
  launch.local_rank = local_rank;
  return launch;
}

Error refusal(DeviceKind wanted, const GpuSurvey& survey, int local_rank = 0) {
  try {
    static_cast<void>(choose_device(wanted, survey, rank_of_host(local_rank)));
  } catch (const Error& error) {
    return error;
  }
  FAIL("a device was chosen");
  throw;
}

TEST_CASE("each rank of a host computes on the GPU of its number", "[mesh][device]") {
  const DeviceChoice choice = choose_device(DeviceKind::automatic, machine(4), rank_of_host(2));
  CHECK(choice.device == at::Device(at::kCUDA, 2));
  CHECK(choice.gpu.uuid == "GPU-2");
  CHECK(choice.note.empty());
}

TEST_CASE("a rank that sees one GPU takes it whatever its number", "[mesh][device]") {
  const DeviceChoice choice = choose_device(DeviceKind::cuda, machine(1), rank_of_host(3));
  CHECK(choice.device == at::Device(at::kCUDA, 0));
}

TEST_CASE("auto without a GPU is the cpu, and says why where that is news", "[mesh][device]") {
  CHECK(choose_device(DeviceKind::automatic, {}, {}).note.empty());  // a build without CUDA
  const DeviceChoice choice = choose_device(DeviceKind::automatic, machine(0), {});
  CHECK(choice.device.is_cpu());
  CHECK(choice.note.find("no GPU") != std::string::npos);
  CHECK(choice.note.find("[cpu-fallback]") != std::string::npos);
  CHECK(choose_device(DeviceKind::cpu, machine(2), {}).device.is_cpu());
}

TEST_CASE("cuda that cannot be had is an error of the environment", "[mesh][device]") {
  CHECK(refusal(DeviceKind::cuda, {}).id() == "no-cuda-build");
  CHECK(refusal(DeviceKind::cuda, machine(0)).id() == "no-gpu");
  GpuSurvey old = machine(1);
  old.driver = 12040;
  const Error error = refusal(DeviceKind::cuda, old);
  CHECK(error.id() == "driver-too-old");
  CHECK(error.exit_code() == 9);
  CHECK(std::string(error.what()).find("12.4") != std::string::npos);
  CHECK(choose_device(DeviceKind::automatic, old, {}).device.is_cpu());
}

TEST_CASE("a card older than the program's code is refused, also by auto", "[mesh][device]") {
  GpuSurvey survey = machine(1);
  survey.gpus[0].capability = 80;
  for (const DeviceKind wanted : {DeviceKind::cuda, DeviceKind::automatic}) {
    const Error error = refusal(wanted, survey);
    CHECK(error.id() == "gpu-capability");
    CHECK(std::string(error.what()).find("-DCMAKE_CUDA_ARCHITECTURES=80") != std::string::npos);
  }
}

TEST_CASE("a build without CUDA refuses a GPU that it is given", "[mesh][device]") {
  if (survey_gpus().built_for != 0) {
    return;  // tests of label cuda use one
  }
  try {
    use_device(at::Device(at::kCUDA, 0));
    FAIL("a GPU was used");
  } catch (const Error& error) {
    CHECK(error.id() == "no-cuda");
  }
  use_device(at::kCPU);
  CHECK(describe_device(at::kCPU) == "cpu");
}

TEST_CASE("a rank beyond the last GPU is told so", "[mesh][device]") {
  CHECK(refusal(DeviceKind::automatic, machine(2), 2).id() == "gpu-missing");
}

}  // namespace
}  // namespace colossal
