// Which launch function multiplies and goes through gelu_tanh in one kernel?
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays of one call, bf16 in rows without gaps, at multiples of 16 bytes; sizes multiples of 8.
struct GeluProduct {
  const void* x_mi = nullptr;
  const void* weight_fi = nullptr;
  const void* bias_f = nullptr;
  void* pre_mf = nullptr;
  void* out_mf = nullptr;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t features = 0;
};

/// Whether the kernel runs on this device (compute capability 9.0, for whose instructions it is
/// written) and has enough work of this size to fill it.
[[nodiscard]] bool takes_gelu_product(int device, std::int64_t rows, std::int64_t features);

/// pre = x weight^T + bias and out = gelu_tanh of the sums, each rounded once.
/// cudaErrorNotSupported, with nothing done, if the driver cannot describe such matrices or the
/// device has no room for two blocks beside each other.
cudaError_t launch_gelu_product(const GeluProduct& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
