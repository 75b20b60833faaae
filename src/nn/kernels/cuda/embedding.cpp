// Which rows does a GPU copy, and in which order does it add the gradients of equal indices? As a
// stable sort leaves them.
#include "nn/kernels/cuda/embedding.hpp"

#include "nn/kernels/cuda/embedding_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>

#include <vector>

namespace colossal::kernels::cuda {

at::Tensor embedding_forward(const at::Tensor& weight_rh, const at::Tensor& indices) {
  const at::Tensor weight = weight_rh.contiguous();
  const at::Tensor indices_m = indices.contiguous();
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.push_back(weight.size(1));
  at::Tensor out = at::empty(shape, weight.options());
  check_launch(launch_embedding_forward(element_type(weight),
                                        {.weight_rh = weight.const_data_ptr(),
                                         .indices_m = indices_m.const_data_ptr<std::int64_t>(),
                                         .out_mh = out.mutable_data_ptr(),
                                         .count = indices_m.numel(),
                                         .rows = weight.size(0),
                                         .hidden = weight.size(1)},
                                        stream_of(weight)),
               "embedding_forward");
  return out;
}

at::Tensor embedding_backward(const at::Tensor& grad_mh,
                              const at::Tensor& indices_m,
                              std::int64_t rows) {
  const auto [sorted_m, places_m] =
      at::sort(indices_m, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor first = at::empty({rows + 1}, indices_m.options());
  at::Tensor out_rh = at::empty({rows, grad_mh.size(1)}, grad_mh.options());
  check_launch(launch_embedding_backward(element_type(grad_mh),
                                         {.grad_mh = grad_mh.const_data_ptr(),
                                          .sorted_m = sorted_m.const_data_ptr<std::int64_t>(),
                                          .places_m = places_m.const_data_ptr<std::int64_t>(),
                                          .first = first.mutable_data_ptr<std::int64_t>(),
                                          .out_rh = out_rh.mutable_data_ptr(),
                                          .count = indices_m.numel(),
                                          .rows = rows,
                                          .hidden = grad_mh.size(1)},
                                         stream_of(grad_mh)),
               "embedding_backward");
  return out_rh;
}

}  // namespace colossal::kernels::cuda
