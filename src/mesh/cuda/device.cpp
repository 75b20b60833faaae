// How are GPUs found and made ready? Through the CUDA runtime that LibTorch uses.
#include "mesh/device.hpp"

#include "core/error.hpp"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>

namespace colossal {
namespace {

/// As `nvidia-smi -L` prints it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

GpuSurvey survey_gpus() {
  GpuSurvey survey;
  survey.built_for = COLOSSAL_CUDA_CAPABILITY;
  cudaRuntimeGetVersion(&survey.runtime);
  cudaDriverGetVersion(&survey.driver);
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver, or none that fits: the caller sees it by the versions
    return survey;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      survey.gpus.push_back({.name = properties.name,
                             .uuid = uuid_text(properties.uuid),
                             .capability = 10 * properties.major + properties.minor,
                             .bytes = static_cast<std::int64_t>(properties.totalGlobalMem)});
    }
  }
  return survey;
}

void use_device(at::Device device) {
  if (device.is_cpu()) {
    return;
  }
  try {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(device.index());
    c10::cuda::device_synchronize();  // makes the context: a card in exclusive use refuses here
  } catch (const c10::Error& error) {
    fail(ErrorKind::environment,
         "gpu-unusable",
         "GPU {} cannot be used: {}\n  fix   see `nvidia-smi` for what else runs on it and for its "
         "compute mode",
         device.index(),
         error.what_without_backtrace());
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowTF32CuDNN(false);
  // Long sums of 16 bits are cut into parts, which are added in fp32.
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
}

void allow_tf32(at::Device device) {
  at::globalContext().setAllowTF32CuBLAS(device.is_cuda());
  at::globalContext().setAllowTF32CuDNN(device.is_cuda());
}

void make_deterministic(at::Device device) {
  if (device.is_cpu()) {
    return;
  }
  // Libraries read these when they are first used. What a user has set stays.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  setenv("NCCL_ALGO", "Ring", /*overwrite=*/0);
  at::Context& torch = at::globalContext();
  torch.setDeterministicAlgorithms(true, /*warn_only=*/false);
  torch.setDeterministicCuDNN(true);
  torch.setBenchmarkCuDNN(false);
  // Each new tensor would be filled, which helps to find what was never written and costs a pass.
  torch.setDeterministicFillUninitializedMemory(false);
}

std::string describe_device(at::Device device) {
  cudaDeviceProp properties{};
  if (device.is_cpu() || cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    return device.str();
  }
  constexpr double kGiB = 1 << 30;
  return fmt::format("{}, {}, {:.1f} GiB",
                     device.str(),
                     properties.name,
                     static_cast<double>(properties.totalGlobalMem) / kGiB);
}

void wait_for_device(at::Device device) {
  if (device.is_cuda()) {
    c10::cuda::device_synchronize();
  }
}

}  // namespace colossal
