// On which device does a rank compute? Chosen once, before anything allocates a tensor.
#pragma once

#include "comm/world.hpp"
#include "config/config.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace colossal {

/// One GPU that this process may use.
struct Gpu {
  std::string name;        ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;        ///< the same for the same card in every process of the machine
  int capability = 0;      ///< 90 for sm_90
  std::int64_t bytes = 0;  ///< of memory
};

/// What this process sees of GPUs, and what it could use.
struct GpuSurvey {
  int built_for = 0;  ///< lowest compute capability that this program has code for; 0: none at all
  int runtime = 0;    ///< CUDA that it was built with, 13000 for 13.0
  int driver = 0;     ///< newest CUDA that the driver knows; 0: there is no driver
  std::vector<Gpu> gpus;  ///< in the order of CUDA_VISIBLE_DEVICES
};

/// Looks for GPUs, without taking memory on any. In a build without CUDA: nothing.
[[nodiscard]] GpuSurvey survey_gpus();

/// Where a rank computes, and what people should know about it.
struct DeviceChoice {
  at::Device device = at::kCPU;
  Gpu gpu;           ///< of a GPU
  std::string note;  ///< why `auto` takes the CPU although the program could use a GPU; or empty
};

/// The device of a rank: on a GPU the one whose index is its LOCAL_RANK, or the only one it sees.
/// `automatic` takes a GPU if it can use one. Errors (of `cuda`): environment "no-cuda-build",
/// "driver-too-old", "no-gpu"; of both: environment "gpu-capability" for a card older than the
/// program's code, "gpu-missing" for a rank without a card of its own.
[[nodiscard]] DeviceChoice choose_device(DeviceKind wanted,
                                         const GpuSurvey& survey,
                                         const LaunchOptions& launch);

/// Makes `device` the current one of this thread and sets what computation on it depends on: fp32
/// products in full precision. Errors: environment "gpu-unusable" if the card cannot be had.
void use_device(at::Device device);

/// From now on, until use_device(), a GPU rounds the factors of fp32 products to 10 bits; sums stay
/// in fp32. On a CPU nothing changes.
void allow_tf32(at::Device device);

/// From now on results on `device` repeat to the last bit, on the same kind of card with the same
/// number of processes: kernels are chosen by rules instead of by timing, none adds in a changing
/// order, and an operation that cannot do so is refused. Call it before the first computation and
/// before processes connect. On a CPU results repeat anyway.
void make_deterministic(at::Device device);

/// A device as people know it: "cpu", or "cuda:0, NVIDIA H100 80GB HBM3, 79.2 GiB".
[[nodiscard]] std::string describe_device(at::Device device);

/// Waits until everything that was given to `device` is done; nothing to wait for on a CPU.
void wait_for_device(at::Device device);

}  // namespace colossal
