// Sums of columns: ATen's on the CPU.
#include "nn/kernels/columns.hpp"

#include "mesh/dtype.hpp"
#include "nn/kernels/cuda/columns.hpp"

#include <ATen/ops/sum.h>

namespace colossal::kernels {

at::Tensor column_sums(const at::Tensor& x_mf) {
  if (x_mf.is_cuda()) {
    return cuda::column_sums(x_mf);
  }
  return at::sum(x_mf, 0, false, wide_dtype(x_mf.scalar_type()));
}

}  // namespace colossal::kernels
