// Tables and their gradients on a GPU; contracts as in nn/kernels/embedding.hpp.
#pragma once

#include "nn/kernels/embedding.hpp"

namespace colossal::kernels::cuda {

/// kernels::embedding_forward on a GPU.
[[nodiscard]] at::Tensor embedding_forward(const at::Tensor& weight_rh, const at::Tensor& indices);
/// kernels::embedding_backward on a GPU, without atomics: equal indices are added in an order that
/// depends on the indices only. An index outside the table takes no part.
[[nodiscard]] at::Tensor embedding_backward(const at::Tensor& grad_mh,
                                            const at::Tensor& indices_m,
                                            std::int64_t rows);

}  // namespace colossal::kernels::cuda
