// How are cuBLASLt's objects and errors held?
#pragma once

#include "core/error.hpp"

#include <c10/core/ScalarType.h>
#include <c10/cuda/CUDAStream.h>

#include <cublasLt.h>
#include <map>
#include <memory>
#include <mutex>

namespace colossal::kernels::cuda {

/// Errors: internal "cuda-launch" naming the call.
inline void check_cublas(cublasStatus_t status, const char* call) {
  check(status == CUBLAS_STATUS_SUCCESS,
        ErrorKind::internal,
        "cuda-launch",
        "{} failed: {}; the device may have failed before",
        call,
        cublasLtGetStatusString(status));
}

/// The library on the current device, for all threads. LibTorch's own handle and workspace read the
/// environment by a regular expression in each call, where a run is deterministic.
[[nodiscard]] inline cublasLtHandle_t library_handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;  // of this process, as LibTorch's are
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[c10::cuda::getCurrentCUDAStream().device_index()];
  if (handle == nullptr) {
    check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
  }
  return handle;
}

/// Deletes what a create function of the library made.
template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};
/// How a matrix lies.
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>>;
/// What a product does.
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>>;
/// Which kernels are asked for.
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

/// The library's word for fp32 or 16 bits.
[[nodiscard]] inline cudaDataType_t type_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) {
    return CUDA_R_32F;
  }
  return dtype == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

}  // namespace colossal::kernels::cuda
