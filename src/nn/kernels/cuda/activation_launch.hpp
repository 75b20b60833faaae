// Which launch functions start the nonlinearities?
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Nonlinearities that have a bias.
enum class ActivationOp : std::uint8_t { gelu, gelu_tanh, relu };

/// Arrays of one call; rows of `width` elements.
struct BiasAct {
  ActivationOp op = ActivationOp::gelu;
  const void* grad = nullptr;  ///< backward only
  const void* pre = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;      ///< result, or gradient of pre
  void* partial = nullptr;  ///< backward: column_parts() rows of sums
  void* bias_grad = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// out = act(pre + bias).
cudaError_t launch_bias_act(ElementType type, const BiasAct& args, cudaStream_t stream);
/// out = grad act'(pre + bias), bias_grad = its sums over rows.
cudaError_t launch_bias_act_backward(ElementType type, const BiasAct& args, cudaStream_t stream);

/// Arrays of one call, `count` elements.
struct Swiglu {
  const void* grad = nullptr;  ///< backward only
  const void* gate = nullptr;
  const void* up = nullptr;
  void* out = nullptr;      ///< result, or gradient of gate
  void* up_grad = nullptr;  ///< backward only
  std::int64_t count = 0;
};

/// out = silu(gate) up.
cudaError_t launch_swiglu(ElementType type, const Swiglu& args, cudaStream_t stream);
/// Gradients of gate and up.
cudaError_t launch_swiglu_backward(ElementType type, const Swiglu& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
