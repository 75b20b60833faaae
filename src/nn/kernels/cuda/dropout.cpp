// Which words does dropout on a GPU compare with which threshold?
#include "nn/kernels/cuda/dropout.hpp"

#include "nn/kernels/cuda/dropout_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

namespace colossal::kernels::cuda {

at::Tensor dropout(const at::Tensor& x, const at::Tensor& residual, const DropoutKey& key) {
  at::Tensor out = at::empty_like(x);
  const double threshold = std::min(std::round(key.p * 0x1p32), 0x1p32 - 1);
  check_launch(launch_dropout(element_type(x),
                              {.x = x.const_data_ptr(),
                               .residual = data_of(residual),
                               .out = out.mutable_data_ptr(),
                               .count = x.numel(),
                               .stream = key.stream,
                               .step = key.step,
                               .first = key.first,
                               .threshold = static_cast<std::uint32_t>(threshold),
                               .scale = 1 / (1 - key.p),
                               .later = key.later},
                              stream_of(x)),
               "dropout");
  return out;
}

}  // namespace colossal::kernels::cuda
