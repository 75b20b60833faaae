// Which launch functions look up rows and add their gradients?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays of one lookup.
struct EmbeddingRows {
  const void* weight_rh = nullptr;
  const std::int64_t* indices_m = nullptr;
  void* out_mh = nullptr;
  std::int64_t count = 0;  ///< m
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
};

/// out[i] = weight[indices[i]], NaN where there is no such row.
cudaError_t launch_embedding_forward(ElementType type,
                                     const EmbeddingRows& args,
                                     cudaStream_t stream);

/// Arrays of one gradient.
struct EmbeddingGrad {
  const void* grad_mh = nullptr;
  const std::int64_t* sorted_m = nullptr;  ///< indices in ascending order
  const std::int64_t* places_m = nullptr;  ///< where each was, ascending among equal ones
  std::int64_t* first = nullptr;           ///< scratch, rows + 1
  void* out_rh = nullptr;
  std::int64_t count = 0;  ///< m
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
};

/// Every row of out_rh: sum of the gradients of its index, zero if there is none.
cudaError_t launch_embedding_backward(ElementType type,
                                      const EmbeddingGrad& args,
                                      cudaStream_t stream);

}  // namespace colossal::kernels::cuda
