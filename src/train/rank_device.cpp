// Which choices of a configuration can only be judged on the machine that runs it?
#include "train/rank_device.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "memory/device_memory.hpp"

namespace colossal {

void check_backend(CommBackend backend, const DeviceChoice& choice) {
  check(backend != CommBackend::nccl || choice.device.is_cuda(),
        ErrorKind::config,
        "gpu-only",
        "parallel.comm.backend is nccl, which moves tensors of GPUs only, and this run computes on "
        "a cpu{}\n  fix   backend: auto",
        choice.note.empty() ? std::string() : ": " + choice.note);
  check(backend != CommBackend::gloo || choice.device.is_cpu(),
        ErrorKind::config,
        "comm-backend",
        "parallel.comm.backend is gloo, which moves tensors of a cpu only, and this run computes "
        "on a GPU\n  fix   backend: auto, or run.device: cpu");
}

void check_graph(CudaGraph wanted, const DeviceChoice& choice) {
  check(wanted != CudaGraph::on || choice.device.is_cuda(),
        ErrorKind::config,
        "gpu-only",
        "train.cuda_graph is true, which only a GPU can do, and this run computes on a cpu{}\n"
        "  fix   cuda_graph: auto",
        choice.note.empty() ? std::string() : ": " + choice.note);
}

void check_precision(Precision wanted, const DeviceChoice& choice) {
  check(
      wanted != Precision::tf32 || choice.device.is_cuda(),
      ErrorKind::config,
      "gpu-only",
      "train.precision is tf32, in which only a GPU multiplies, and this run computes on a cpu{}\n"
      "  fix   precision: fp32",
      choice.note.empty() ? std::string() : ": " + choice.note);
}

namespace {

/// Counts tensors from here on, and gives device and host the sizes that the configuration names.
void use_memory(const Config& config, at::Device device) {
  count_device_memory(device);
  device_memory().set_limit(config.run.device_memory);
  const std::optional<GeminiConfig>& gemini = config.parallel.gemini;
  gauge(MemoryKind::host).set_limit(gemini ? gemini->host_memory : std::nullopt);
}

}  // namespace

DeviceChoice take_device(const Config& config, const LaunchOptions& launch) {
  const DeviceKind wanted = config.run.device;
  const DeviceChoice choice = blaming("run.device", [&] {
    return choose_device(wanted, wanted == DeviceKind::cpu ? GpuSurvey{} : survey_gpus(), launch);
  });
  blaming("parallel.comm.backend", [&] { check_backend(config.parallel.comm.backend, choice); });
  blaming("train.cuda_graph", [&] { check_graph(config.train.cuda_graph, choice); });
  blaming("train.precision", [&] { check_precision(config.train.precision, choice); });
  if (!choice.note.empty()) {
    log::console("note: " + choice.note);
  }
  use_device(choice.device);
  if (config.train.precision == Precision::tf32) {
    allow_tf32(choice.device);
  }
  if (config.run.deterministic) {
    make_deterministic(choice.device);
  }
  use_memory(config, choice.device);
  return choice;
}

}  // namespace colossal
