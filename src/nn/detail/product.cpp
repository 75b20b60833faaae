// Which products can LibTorch do well?
#include "nn/detail/product.hpp"

#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace colossal::detail {

namespace {

/// Whether ATen multiplies matrices of this dtype in vector code of the CPU. oneDNN does for bf16
/// with AVX-512; for the rest of 16 bits there are loops that take up to 40 times as long as fp32.
bool multiplies_fast(at::ScalarType dtype) {
  static const bool wide_registers = __builtin_cpu_supports("avx512bw") != 0 &&
                                     __builtin_cpu_supports("avx512vl") != 0 &&
                                     __builtin_cpu_supports("avx512dq") != 0;
  return dtype != at::kHalf && (dtype != at::kBFloat16 || wide_registers);
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_cuda()) {
    return kernels::cuda::product(a, b);
  }
  return multiplies_fast(a.scalar_type())
             ? at::mm(a, b)
             : at::mm(kernels::widened(a), kernels::widened(b)).to(a.scalar_type());
}

at::Tensor product(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b) {
  if (a.is_cuda()) {
    return kernels::cuda::product(bias, a, b);
  }
  return multiplies_fast(a.scalar_type())
             ? at::addmm(bias, a, b)
             : at::addmm(kernels::widened(bias), kernels::widened(a), kernels::widened(b))
                   .to(a.scalar_type());
}

std::int64_t product_scratch_bytes(const ProductSize& size, at::ScalarType dtype) {
  const auto [m, k, n, transposed] = size;
  if (!multiplies_fast(dtype)) {
    const auto wide = static_cast<std::int64_t>(at::elementSize(wide_dtype(dtype)));
    return wide * (m * k + k * n + m * n);
  }
  if (dtype != at::kBFloat16) {
    return 0;
  }
  // Sums in fp32 of a block of the result, and the columns of the second matrix that make it.
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 64;
  constexpr std::int64_t kDepth = 512;
  constexpr std::int64_t kOther = 1024;
  const std::int64_t rows = std::min(m, kRows);
  const std::int64_t first = transposed ? 2 * rows * k : 0;
  return kOther + kColumns * (4 * rows + 2 * std::min(k, kDepth)) + first;
}

}  // namespace colossal::detail
