// Which launch function multiplies a few rows?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// y[rows][out] = x[rows][in] weight[out][in]^T + bias, fp32 or fp64.
struct FewRows {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  ///< may be null
  void* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

/// A row's result depends on this row, weight and bias only, bit for bit.
cudaError_t launch_few_rows(ElementType type, const FewRows& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
