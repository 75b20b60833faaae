// Which arrays does a product of a few rows work on?
#include "nn/kernels/cuda/few_rows.hpp"

#include "nn/kernels/cuda/few_rows_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty.h>

namespace colossal::kernels::cuda {

at::Tensor linear_few_rows(const at::Tensor& x_mi,
                           const at::Tensor& weight_oi,
                           const at::Tensor& bias_o) {
  at::Tensor y_mo = at::empty({x_mi.size(0), weight_oi.size(0)}, x_mi.options());
  check_launch(launch_few_rows(wide_element_type(x_mi),
                               {.x = x_mi.const_data_ptr(),
                                .weight = weight_oi.const_data_ptr(),
                                .bias = data_of(bias_o),
                                .y = y_mo.mutable_data_ptr(),
                                .rows = x_mi.size(0),
                                .in = x_mi.size(1),
                                .out = weight_oi.size(0)},
                               stream_of(x_mi)),
               "linear_few_rows");
  return y_mo;
}

}  // namespace colossal::kernels::cuda
