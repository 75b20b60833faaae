// Keyed dropout on a GPU; contract as in nn/kernels/dropout.hpp.
#pragma once

#include "nn/kernels/dropout.hpp"

namespace colossal::kernels::cuda {

/// kernels::dropout on a GPU: the bits of the CPU.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x,
                                 const at::Tensor& residual,
                                 const DropoutKey& key);

}  // namespace colossal::kernels::cuda
