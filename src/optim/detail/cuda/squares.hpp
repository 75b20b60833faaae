// How large are the gradients of many parameters that are in the memory of a GPU?
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace colossal::detail::cuda {

/// Sums of squares of flat tensors of one dtype: fp64, one each, on the device, for which nobody
/// waits. The order of additions depends on sizes only.
[[nodiscard]] at::Tensor squares_of(std::span<const at::Tensor> parts);

}  // namespace colossal::detail::cuda
