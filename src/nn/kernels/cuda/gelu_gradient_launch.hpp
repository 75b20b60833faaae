// Which launch function multiplies and goes back through gelu_tanh in one kernel?
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays of one call, bf16 in rows without gaps, at multiples of 16 bytes; sizes multiples of 8.
struct GeluGradient {
  const void* g_mo = nullptr;
  const void* weight_of = nullptr;
  void* pre_mf = nullptr;  ///< read; with `activates` gelu_tanh of it takes its place
  void* out_mf = nullptr;
  float* partial_pf = nullptr;  ///< gelu_gradient_parts() rows of sums over rows of out_mf
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t features = 0;
  bool activates = false;
};

/// Whether the kernel runs on this device (compute capability 9.0, for whose instructions it is
/// written) and has enough work of this size to fill it.
[[nodiscard]] bool takes_gelu_gradient(int device, std::int64_t rows, std::int64_t features);

/// Rows of partial sums: a function of the shape.
[[nodiscard]] std::int64_t gelu_gradient_parts(std::int64_t rows);

/// out = g weight times the slope of gelu_tanh at pre, rounded once; the sums are of
/// results that are not yet rounded. cudaErrorNotSupported, with nothing done, if the driver cannot
/// describe such matrices or the device has no room for two blocks beside each other.
cudaError_t launch_gelu_gradient(const GeluGradient& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
