// How are cuBLASLt's objects and errors held?
#pragma once

#include "core/error.hpp"

#include <c10/core/ScalarType.h>

#include <cublasLt.h>
#include <memory>

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
