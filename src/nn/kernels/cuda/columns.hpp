// Sums of columns on a GPU; contract as in nn/kernels/columns.hpp.
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal::kernels::cuda {

/// kernels::column_sums on a GPU; the order of additions depends on the shape only.
[[nodiscard]] at::Tensor column_sums(const at::Tensor& x_mf);

}  // namespace colossal::kernels::cuda
