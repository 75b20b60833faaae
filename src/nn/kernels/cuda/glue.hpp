// What does every glue file between tensors and launch functions need?
#pragma once

#include "core/error.hpp"
#include "nn/kernels/cuda/element_type.hpp"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

namespace colossal::kernels::cuda {

/// Type of the elements. Errors: internal "kernel-dtype" as on the CPU.
[[nodiscard]] inline ElementType element_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ElementType::fp32;
    case at::kDouble:
      return ElementType::fp64;
    case at::kBFloat16:
      return ElementType::bf16;
    case at::kHalf:
      return ElementType::fp16;
    default:
      fail(ErrorKind::internal,
           "kernel-dtype",
           "no kernel for tensors of {}",
           c10::toString(x.scalar_type()));
  }
}

/// The same for kernels that know no 16 bits: their callers widen.
[[nodiscard]] inline ElementType wide_element_type(const at::Tensor& x) {
  check(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
        ErrorKind::internal,
        "kernel-dtype",
        "no kernel for tensors of {}",
        c10::toString(x.scalar_type()));
  return element_type(x);
}

/// The stream that work on x goes to.
[[nodiscard]] inline cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.get_device()).stream();
}

/// Errors: internal "cuda-launch" naming the kernel and what CUDA says.
inline void check_launch(cudaError_t status, const char* kernel) {
  check(
      status == cudaSuccess,
      ErrorKind::internal,
      "cuda-launch",
      "the kernel '{}' could not be started: {}; the device may have failed before, or the binary "
      "was built for another one",
      kernel,
      cudaGetErrorString(status));
}

/// Address of the elements, null for an undefined tensor.
[[nodiscard]] inline const void* data_of(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}

}  // namespace colossal::kernels::cuda
