// Which launch functions compute the cross entropy?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays of one call.
struct TokenLoss {
  void* logits_mv = nullptr;
  const std::int64_t* labels_m = nullptr;
  double* row_loss_m = nullptr;  ///< scratch
  void* loss = nullptr;          ///< one wide number
  std::int64_t rows = 0;
  std::int64_t width = 0;  ///< columns, padding included
  std::int64_t vocabulary = 0;
  std::int64_t ignored = 0;  ///< label of rows that do not count
  double grad_scale = 1;
  bool want_grad = false;
};

/// Loss, and the gradient in place of the logits.
cudaError_t launch_token_loss(ElementType type, const TokenLoss& args, cudaStream_t stream);

/// x[i] *= factor[0] / expected, where they differ; `factor` has wide elements.
cudaError_t launch_scale(ElementType type,
                         void* x,
                         std::int64_t count,
                         const void* factor,
                         double expected,
                         cudaStream_t stream);

}  // namespace colossal::kernels::cuda
