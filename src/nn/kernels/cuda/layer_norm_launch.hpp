// Which launch functions compute LayerNorm?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Arrays of the forward pass.
struct LayerNormForward {
  const void* x_mh = nullptr;
  const void* weight_h = nullptr;
  const void* bias_h = nullptr;
  void* y_mh = nullptr;
  void* mean_m = nullptr;  ///< wide
  void* rstd_m = nullptr;  ///< wide
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  double eps = 0;
};

/// y = (x - mean) rstd weight + bias.
cudaError_t launch_layer_norm(ElementType type, const LayerNormForward& args, cudaStream_t stream);

/// Arrays of the backward pass.
struct LayerNormBackward {
  const void* grad_mh = nullptr;
  const void* x_mh = nullptr;
  const void* weight_h = nullptr;
  const void* mean_m = nullptr;
  const void* rstd_m = nullptr;
  const void* residual_mh = nullptr;  ///< may be null
  void* x_grad_mh = nullptr;
  void* partial_ph = nullptr;  ///< wide, layer_norm_parts() rows of 2 hidden
  void* sums_h = nullptr;      ///< wide, 2 hidden: gradients of weight, then of bias
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
};

/// Rows of partial sums: a function of the shape.
[[nodiscard]] std::int64_t layer_norm_parts(std::int64_t rows, std::int64_t hidden);

/// Gradients of x, weight and bias.
cudaError_t launch_layer_norm_backward(ElementType type,
                                       const LayerNormBackward& args,
                                       cudaStream_t stream);

}  // namespace colossal::kernels::cuda
