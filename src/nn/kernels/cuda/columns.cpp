// Which arrays does a sum of columns need?
#include "nn/kernels/cuda/columns.hpp"

#include "mesh/dtype.hpp"
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty.h>

namespace colossal::kernels::cuda {

at::Tensor column_sums(const at::Tensor& x_mf) {
  const at::Tensor x = x_mf.contiguous();
  const std::int64_t rows = x.size(0);
  const std::int64_t width = x.size(1);
  const ElementType type = element_type(x);
  const at::TensorOptions wide = x.options().dtype(wide_dtype(x.scalar_type()));
  at::Tensor out_f = at::empty({width}, wide);
  const at::Tensor partial = at::empty({column_parts(rows, width, type), width}, wide);
  check_launch(launch_column_sums(type,
                                  {.x_mf = x.const_data_ptr(),
                                   .rows = rows,
                                   .width = width,
                                   .partial_pf = partial.mutable_data_ptr(),
                                   .out_f = out_f.mutable_data_ptr()},
                                  stream_of(x)),
               "column_sums");
  return out_f;
}

}  // namespace colossal::kernels::cuda
