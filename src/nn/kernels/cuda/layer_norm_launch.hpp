// Which launch functions compute LayerNorm?
#pragma once

#include "nn/kernels/cuda/columns_launch.hpp"
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
  void* partial_ph = nullptr;  ///< wide, layer_norm_parts() rows of 3 hidden
  ColumnTarget weight_grad;
  ColumnTarget bias_grad;
  ColumnTarget x_sums;  ///< sums over the rows of x_grad_mh
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
};

/// Rows of partial sums: a function of the shape.
[[nodiscard]] std::int64_t layer_norm_parts(std::int64_t rows, std::int64_t hidden);

/// Gradients of x, weight and bias, and sums of the first.
cudaError_t launch_layer_norm_backward(ElementType type,
                                       const LayerNormBackward& args,
                                       cudaStream_t stream);

}  // namespace colossal::kernels::cuda
