// Which gradients of attention are written where they belong, without a copy?
#pragma once

#include "nn/kernels/attention.hpp"

namespace colossal::kernels::cuda {

/// Gradient of a packed qkv of 16 bits by cuDNN's graphs, which write the gradients of q, k and v
/// into it head by head. `forward`: as cuDNN's forward left it. The kernel of a shape is the
/// fastest that the library has, timed at the first call, or, where ATen is asked for determinism,
/// its first deterministic one. Undefined, with a line in the log once a shape, where there is
/// none: k, v heads that several q heads share, shapes that cuDNN refuses, a build without
/// nvidia-cudnn-frontend. Errors: internal "cuda-launch" where a kernel that ran before fails.
[[nodiscard]] at::Tensor packed_attention_backward(const at::Tensor& grad_bsh,
                                                   const at::Tensor& qkv_bsd,
                                                   const AttentionResult& forward,
                                                   const AttentionShape& shape);

}  // namespace colossal::kernels::cuda
