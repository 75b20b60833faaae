// Which matrices does the kernel of the product before gelu take?
#include "nn/kernels/cuda/gelu_product.hpp"

#include "nn/kernels/cuda/gelu_product_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/plain.hpp"

#include <ATen/ops/empty.h>

namespace colossal::kernels::cuda {

LinearGelu gelu_product(const at::Tensor& x_mi,
                        const at::Tensor& weight_fi,
                        const at::Tensor& bias_f) {
  const std::int64_t rows = x_mi.size(0);
  const std::int64_t in = x_mi.size(1);
  const std::int64_t features = weight_fi.size(0);
  if (!is_plain(x_mi) || !is_plain(weight_fi) || !is_plain(bias_f) ||
      !takes_gelu_product(x_mi.get_device(), rows, features)) {
    return {};
  }
  LinearGelu result{at::empty({rows, features}, x_mi.options()),
                    at::empty({rows, features}, x_mi.options())};
  const cudaError_t status = launch_gelu_product({.x_mi = x_mi.const_data_ptr(),
                                                  .weight_fi = weight_fi.const_data_ptr(),
                                                  .bias_f = bias_f.const_data_ptr(),
                                                  .pre_mf = result.pre_mf.mutable_data_ptr(),
                                                  .out_mf = result.y_mf.mutable_data_ptr(),
                                                  .rows = rows,
                                                  .in = in,
                                                  .features = features},
                                                 stream_of(x_mi));
  if (status == cudaErrorNotSupported) {
    return {};
  }
  check_launch(status, "gelu_product");
  return result;
}

}  // namespace colossal::kernels::cuda
