// Which products can LibTorch do well?
#include "nn/detail/product.hpp"

#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace at::native {

/// result = beta result + alpha a b by oneDNN. LibTorch exports it and ships no header for it
/// (ATen/native/mkldnn/Matmul.h in its sources); another signature would not link.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);

}  // namespace at::native

namespace colossal::detail {

namespace {

/// Whether the CPU has the AVX-512 instructions that oneDNN asks for.
bool has_wide_registers() {
  static const bool has = __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0;
  return has;
}

/// Whether ATen multiplies matrices of this dtype in vector code of the CPU. oneDNN does for bf16
/// with AVX-512; for the rest of 16 bits there are loops that take up to 40 times as long as fp32.
bool multiplies_fast(at::ScalarType dtype) {
  return dtype != at::kHalf && (dtype != at::kBFloat16 || has_wide_registers());
}

/// Multiplications below which preparing oneDNN's kernel takes longer than it saves.
constexpr std::int64_t kSmallProduct = std::int64_t{1} << 22U;

/// Whether oneDNN multiplies faster than MKL, which ATen calls for fp32: MKL uses AVX-512 on
/// Intel's processors only.
bool better_by_onednn(const ProductSize& size, at::ScalarType dtype) {
  static const bool wasted = has_wide_registers() && __builtin_cpu_is("intel") == 0;
  return wasted && dtype == at::kFloat && size.m * size.k * size.n >= kSmallProduct;
}

bool better_by_onednn(const at::Tensor& a, const at::Tensor& b) {
  return better_by_onednn({.m = a.size(0), .k = a.size(1), .n = b.size(1)}, a.scalar_type());
}

/// What oneDNN's fp32 kernels ask for, each thread: columns of b and, of a transposed a, rows, both
/// copied into the order in which they are read. `depth` of both at a time; a b is copied that is
/// transposed (as far as the caller says nothing of it) or whose rows would fall on the same lines
/// of the cache.
std::int64_t onednn_fp32_scratch(const ProductSize& size, std::int64_t threads) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 64;
  constexpr std::int64_t kDepth = 512;
  constexpr std::int64_t kSameLines = 512;
  constexpr std::int64_t kOther = 1024;
  const std::int64_t depth = size.k > 2 * kDepth ? 2 * kDepth : std::min(size.k, kDepth);
  if (!size.transposed) {
    return threads * (kOther + 4 * kColumns * depth);
  }
  const std::int64_t parts = std::max((size.m + kRows - 1) / kRows, threads);
  const std::int64_t rows = (size.m + parts - 1) / parts;
  const std::int64_t second =
      size.n % kSameLines == 0 ? 4 * kColumns * std::min(size.k, kDepth) : 0;
  return threads * (kOther + rows * (4 * std::min(size.k, kDepth) + kColumns) + second);
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_cuda()) {
    return kernels::cuda::product(a, b);
  }
  if (better_by_onednn(a, b)) {
    at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
    at::native::mkldnn_matmul(a, b, result, 0, 1);
    return result;
  }
  return multiplies_fast(a.scalar_type())
             ? at::mm(a, b)
             : at::mm(kernels::widened(a), kernels::widened(b)).to(a.scalar_type());
}

at::Tensor product(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b) {
  if (a.is_cuda()) {
    return kernels::cuda::product(bias, a, b);
  }
  if (better_by_onednn(a, b)) {
    at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
    result.copy_(bias.expand_as(result));
    at::native::mkldnn_matmul(a, b, result, 1, 1);
    return result;
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
  if (better_by_onednn(size, dtype)) {
    return onednn_fp32_scratch(size, at::get_num_threads());
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
