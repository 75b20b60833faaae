// Which matrices does the kernel of gelu's gradient take, and where do its sums go?
#include "nn/kernels/cuda/gelu_gradient.hpp"

#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/gelu_gradient_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/gradient_target.hpp"
#include "nn/kernels/cuda/plain.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace colossal::kernels::cuda {

bool takes_gelu_gradient(const at::Tensor& x_mi, const at::Tensor& weight_fi) {
  return is_plain(x_mi) && is_plain(weight_fi) &&
         takes_gelu_gradient(x_mi.get_device(), x_mi.size(0), weight_fi.size(0));
}

BiasActGrad gelu_gradient(const at::Tensor& g_mo,
                          const at::Tensor& weight_of,
                          const at::Tensor& pre_mf,
                          bool activates) {
  const std::int64_t rows = pre_mf.size(0);
  const std::int64_t features = pre_mf.size(1);
  const std::int64_t in = g_mo.size(1);
  if (!is_plain(g_mo) || !is_plain(weight_of) || !is_plain(pre_mf) ||
      !takes_gelu_gradient(pre_mf.get_device(), rows, features)) {
    return {};
  }
  const at::TensorOptions wide = pre_mf.options().dtype(at::kFloat);
  BiasActGrad result{at::empty_like(pre_mf), at::empty({features}, wide)};
  const std::int64_t parts = gelu_gradient_parts(rows);
  const at::Tensor partial = at::empty({parts, features}, wide);
  const cudaStream_t stream = stream_of(pre_mf);
  const cudaError_t status = launch_gelu_gradient({.g_mo = g_mo.const_data_ptr(),
                                                   .weight_of = weight_of.const_data_ptr(),
                                                   .pre_mf = pre_mf.mutable_data_ptr(),
                                                   .out_mf = result.pre_mf.mutable_data_ptr(),
                                                   .partial_pf = partial.mutable_data_ptr<float>(),
                                                   .rows = rows,
                                                   .in = in,
                                                   .features = features,
                                                   .activates = activates},
                                                  stream);
  if (status == cudaErrorNotSupported) {
    return {};
  }
  check_launch(status, "gelu_gradient");
  check_launch(launch_add_parts(ElementType::fp32,
                                {.partial_pf = partial.const_data_ptr(),
                                 .rows = parts,
                                 .width = features,
                                 .targets = {target_of(result.bias_f)},
                                 .num_targets = 1},
                                stream),
               "gelu_gradient");
  return result;
}

}  // namespace colossal::kernels::cuda
