// How do kernels that sum columns write into the gradient of a parameter?
#pragma once

#include "nn/gradient.hpp"
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

namespace colossal::kernels::cuda {

/// x as it is written anew.
[[nodiscard]] inline ColumnTarget target_of(const at::Tensor& x) {
  return {.out = x.mutable_data_ptr(), .type = element_type(x), .adds = false};
}

/// A gradient: what it holds stays in the sum, unless nothing was written yet. count_write()
/// follows the launch.
[[nodiscard]] inline ColumnTarget gradient_target(const at::Tensor& gradient) {
  return {.out = gradient.mutable_data_ptr(),
          .type = element_type(gradient),
          .adds = !is_unwritten(gradient)};
}

}  // namespace colossal::kernels::cuda
