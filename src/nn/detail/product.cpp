// Which products can LibTorch do well?
#include "nn/detail/product.hpp"

#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

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
constexpr double kSmallProduct = 1U << 22U;

/// Whether oneDNN multiplies faster than MKL, which ATen calls for fp32: MKL uses AVX-512 on
/// Intel's processors only.
bool better_by_onednn(const ProductSize& size, at::ScalarType dtype) {
  static const bool wasted = has_wide_registers() && __builtin_cpu_is("intel") == 0;
  return wasted && dtype == at::kFloat &&
         static_cast<double>(size.m) * static_cast<double>(size.k) * static_cast<double>(size.n) >=
             kSmallProduct;
}

bool better_by_onednn(const at::Tensor& a, const at::Tensor& b) {
  return better_by_onednn({.m = a.size(0), .k = a.size(1), .n = b.size(1)}, a.scalar_type());
}

}  // namespace

ProductLibrary library_of(const ProductSize& size, at::ScalarType dtype) {
  if (!multiplies_fast(dtype)) {
    return ProductLibrary::widened;
  }
  const bool by_onednn = dtype == at::kBFloat16 || better_by_onednn(size, dtype);
  return by_onednn ? ProductLibrary::onednn : ProductLibrary::mkl;
}

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

}  // namespace colossal::detail
