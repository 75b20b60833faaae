// Which arrays does LayerNorm on a GPU work on?
#include "nn/kernels/cuda/layer_norm.hpp"

#include "mesh/dtype.hpp"
#include "nn/kernels/cuda/columns.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/gradient_target.hpp"
#include "nn/kernels/cuda/layer_norm_launch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace colossal::kernels::cuda {

LayerNormResult layer_norm_forward(const at::Tensor& x_mh,
                                   const at::Tensor& weight_h,
                                   const at::Tensor& bias_h,
                                   double eps) {
  const std::int64_t rows = x_mh.size(0);
  const at::TensorOptions wide = x_mh.options().dtype(wide_dtype(x_mh.scalar_type()));
  LayerNormResult result{at::empty_like(x_mh), at::empty({rows}, wide), at::empty({rows}, wide)};
  check_launch(launch_layer_norm(element_type(x_mh),
                                 {.x_mh = x_mh.const_data_ptr(),
                                  .weight_h = weight_h.const_data_ptr(),
                                  .bias_h = bias_h.const_data_ptr(),
                                  .y_mh = result.y_mh.mutable_data_ptr(),
                                  .mean_m = result.mean_m.mutable_data_ptr(),
                                  .rstd_m = result.rstd_m.mutable_data_ptr(),
                                  .rows = rows,
                                  .hidden = x_mh.size(1),
                                  .eps = eps},
                                 stream_of(x_mh)),
               "layer_norm_forward");
  return result;
}

namespace {

/// Gradient of x; those of weight and bias go to the targets.
at::Tensor backward(const at::Tensor& grad_mh,
                    const LayerNormSaved& saved,
                    const at::Tensor& residual_mh,
                    const ColumnTarget& weight_grad,
                    const ColumnTarget& bias_grad) {
  const std::int64_t rows = grad_mh.size(0);
  const std::int64_t hidden = grad_mh.size(1);
  at::Tensor x_grad = at::empty_like(grad_mh);
  const at::TensorOptions wide = saved.mean_m.options();
  const at::Tensor partial = at::empty({layer_norm_parts(rows, hidden), 3 * hidden}, wide);
  const at::Tensor x_sums = at::empty({hidden}, wide);
  check_launch(launch_layer_norm_backward(element_type(grad_mh),
                                          {.grad_mh = grad_mh.const_data_ptr(),
                                           .x_mh = saved.x_mh.const_data_ptr(),
                                           .weight_h = saved.weight_h.const_data_ptr(),
                                           .mean_m = saved.mean_m.const_data_ptr(),
                                           .rstd_m = saved.rstd_m.const_data_ptr(),
                                           .residual_mh = data_of(residual_mh),
                                           .x_grad_mh = x_grad.mutable_data_ptr(),
                                           .partial_ph = partial.mutable_data_ptr(),
                                           .weight_grad = weight_grad,
                                           .bias_grad = bias_grad,
                                           .x_sums = target_of(x_sums),
                                           .rows = rows,
                                           .hidden = hidden},
                                          stream_of(grad_mh)),
               "layer_norm_backward");
  remember_column_sums(x_grad, x_sums);
  return x_grad;
}

}  // namespace

LayerNormGrad layer_norm_backward(const at::Tensor& grad_mh,
                                  const LayerNormSaved& saved,
                                  const at::Tensor& residual_mh) {
  const at::Tensor sums = at::empty({2, grad_mh.size(1)}, saved.mean_m.options());
  LayerNormGrad grad{{}, sums.select(0, 0), sums.select(0, 1)};
  grad.x_mh =
      backward(grad_mh, saved, residual_mh, target_of(grad.weight_h), target_of(grad.bias_h));
  return grad;
}

at::Tensor give_layer_norm_backward(const at::Tensor& grad_mh,
                                    const LayerNormSaved& saved,
                                    const at::Tensor& residual_mh,
                                    const at::Tensor& weight_gradient_h,
                                    const at::Tensor& bias_gradient_h) {
  at::Tensor x_grad = backward(grad_mh,
                               saved,
                               residual_mh,
                               gradient_target(weight_gradient_h),
                               gradient_target(bias_gradient_h));
  count_write(weight_gradient_h);
  count_write(bias_gradient_h);
  return x_grad;
}

}  // namespace colossal::kernels::cuda
