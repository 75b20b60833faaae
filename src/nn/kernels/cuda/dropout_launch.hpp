// Which launch function drops elements?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays and key of one call.
struct Dropout {
  const void* x = nullptr;
  const void* residual = nullptr;  ///< may be null
  void* out = nullptr;
  std::int64_t count = 0;
  std::uint64_t stream = 0;  ///< as in DropoutKey
  std::uint32_t step = 0;
  std::uint64_t first = 0;
  std::uint32_t threshold = 0;           ///< smallest word that keeps
  double scale = 1;                      ///< of what is kept
  const std::uint32_t* later = nullptr;  ///< of the device, added to step; may be null
};

/// out = residual + (kept ? x scale : 0).
cudaError_t launch_dropout(ElementType type, const Dropout& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
