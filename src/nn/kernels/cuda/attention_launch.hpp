// Which launch functions stand between the products of plain attention?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Scores of some samples: rows are (sample, k v head, q head of its group, query), fp32 or fp64.
struct ScoreRows {
  void* scores = nullptr;  ///< [rows, sequence]
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  std::int64_t rows_of_sample = 0;  ///< num_heads * sequence
  const std::int64_t* starts_bs =
      nullptr;  ///< first key of each query of these samples; may be null
  bool causal = true;
  double scale = 1;
};

/// scores = softmax of each row over the keys that its query sees, zero elsewhere; log_sum (one
/// number a row) = log of the sum of exp(scale score).
cudaError_t launch_softmax(ElementType type,
                           const ScoreRows& rows,
                           void* log_sum,
                           cudaStream_t stream);

/// scores = probabilities again, from log_sum; slope (in: gradient of the probabilities, same
/// shape) = gradient of the scores before they are scaled. `inner`: gradient of the context times
/// context, one number a row.
cudaError_t launch_softmax_backward(ElementType type,
                                    const ScoreRows& rows,
                                    const void* log_sum,
                                    const void* inner,
                                    void* slope,
                                    cudaStream_t stream);

}  // namespace colossal::kernels::cuda
