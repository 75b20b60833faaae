// Which of the GPUs a process sees belongs to its rank, and why can it use none?
#include "mesh/device.hpp"

#include "core/error.hpp"

#include <ATen/Context.h>

#include <cstdlib>
#include <optional>
#include <utility>

namespace colossal {
namespace {

/// Why a program can use no GPU of this machine.
struct Obstacle {
  ErrorKind kind;
  std::string id;
  std::string message;
  std::string fix;
};

/// "9.0" of 90.
std::string capability_text(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

/// "13.0" of 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// " (CUDA_VISIBLE_DEVICES is '...')", or nothing.
std::string visible_text() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
  return visible == nullptr ? std::string()
                            : fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", visible);
}

std::optional<Obstacle> obstacle(const GpuSurvey& survey) {
  if (survey.built_for == 0) {
    return Obstacle{ErrorKind::environment,
                    "no-cuda-build",
                    "this program was built without CUDA",
                    "build it with `cmake --preset cuda`, or set run.device: cpu"};
  }
  // Drivers of one major version run what any of its toolkits has built.
  if (survey.driver != 0 && survey.driver / 1000 < survey.runtime / 1000) {
    return Obstacle{ErrorKind::environment,
                    "driver-too-old",
                    fmt::format("the GPU driver knows CUDA up to {}, this program needs {}",
                                version_text(survey.driver),
                                version_text(survey.runtime)),
                    "install a newer driver, or set run.device: cpu"};
  }
  if (survey.gpus.empty()) {
    return Obstacle{ErrorKind::environment,
                    "no-gpu",
                    survey.driver == 0
                        ? std::string("there is no GPU driver on this machine")
                        : fmt::format("the driver shows no GPU to this process{}", visible_text()),
                    "start where `nvidia-smi` lists a GPU, or set run.device: cpu"};
  }
  return std::nullopt;
}

}  // namespace

DeviceChoice choose_device(DeviceKind wanted,
                           const GpuSurvey& survey,
                           const LaunchOptions& launch) {
  if (wanted == DeviceKind::cpu) {
    return {};
  }
  if (const auto found = obstacle(survey)) {
    check(wanted == DeviceKind::automatic,
          found->kind,
          found->id,
          "run.device is cuda, and {}\n  fix   {}",
          found->message,
          found->fix);
    // A build without CUDA has nothing to fall back from.
    return {.device = at::kCPU,
            .gpu = {},
            .note = survey.built_for == 0
                        ? std::string()
                        : fmt::format("computing on the cpu: {} [cpu-fallback]", found->message)};
  }
  const auto count = static_cast<int>(survey.gpus.size());
  const int index = count == 1 ? 0 : launch.local_rank;
  check(index < count,
        ErrorKind::environment,
        "gpu-missing",
        "the rank with LOCAL_RANK {} has no GPU: {} are visible to it{}\n  fix   start at most {} "
        "processes on this machine, or set run.device: cpu",
        launch.local_rank,
        count,
        visible_text(),
        count);
  const Gpu& gpu = survey.gpus[static_cast<std::size_t>(index)];
  check(gpu.capability >= survey.built_for,
        ErrorKind::environment,
        "gpu-capability",
        "GPU {} ({}) has compute capability {}, and this program was built for {} and newer\n"
        "  fix   build with -DCMAKE_CUDA_ARCHITECTURES={}, use another GPU "
        "(CUDA_VISIBLE_DEVICES), or set run.device: cpu",
        index,
        gpu.name,
        capability_text(gpu.capability),
        capability_text(survey.built_for),
        gpu.capability);
  return {.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)),
          .gpu = gpu,
          .note = {}};
}

}  // namespace colossal
