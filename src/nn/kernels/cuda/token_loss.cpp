// Where does the loss of a GPU stay? On the device, as a scalar tensor.
#include "nn/kernels/cuda/token_loss.hpp"

#include "core/batch.hpp"
#include "mesh/dtype.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/token_loss_launch.hpp"

#include <ATen/ops/empty.h>

namespace colossal::kernels::cuda {

at::Tensor token_loss(at::Tensor& logits_mv,
                      const at::Tensor& labels_m,
                      std::int64_t vocabulary,
                      std::optional<double> grad_factor) {
  const std::int64_t rows = logits_mv.size(0);
  const at::Tensor row_loss_m = at::empty({rows}, logits_mv.options().dtype(at::kDouble));
  at::Tensor loss = at::empty({}, logits_mv.options().dtype(wide_dtype(logits_mv.scalar_type())));
  check_launch(launch_token_loss(element_type(logits_mv),
                                 {.logits_mv = logits_mv.mutable_data_ptr(),
                                  .labels_m = labels_m.const_data_ptr<std::int64_t>(),
                                  .row_loss_m = row_loss_m.mutable_data_ptr<double>(),
                                  .loss = loss.mutable_data_ptr(),
                                  .rows = rows,
                                  .width = logits_mv.size(1),
                                  .vocabulary = vocabulary,
                                  .ignored = kIgnoreLabel,
                                  .grad_scale = grad_factor.value_or(1),
                                  .want_grad = grad_factor.has_value()},
                                 stream_of(logits_mv)),
               "token_loss");
  return loss;
}

void scale_loss_grad(at::Tensor& grad, const at::Tensor& factor, double expected) {
  check(factor.scalar_type() == wide_dtype(grad.scalar_type()) && factor.numel() == 1,
        ErrorKind::internal,
        "kernel-dtype",
        "a gradient of {} is scaled by a factor of {}",
        c10::toString(grad.scalar_type()),
        c10::toString(factor.scalar_type()));
  check_launch(launch_scale(element_type(grad),
                            grad.mutable_data_ptr(),
                            grad.numel(),
                            factor.const_data_ptr(),
                            expected,
                            stream_of(grad)),
               "scale_loss_grad");
}

}  // namespace colossal::kernels::cuda
