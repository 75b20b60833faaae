// Which products can LibTorch do well?
#include "nn/detail/product.hpp"

#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <tuple>

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

/// What its bf16 kernels ask for, each thread: sums in fp32 of a block of the result, the columns
/// of the second matrix that make it, and the rows of a transposed first one.
std::int64_t onednn_bf16_scratch(const ProductSize& size, std::int64_t threads) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 64;
  constexpr std::int64_t kDepth = 512;
  constexpr std::int64_t kOther = 1024;
  const std::int64_t rows = std::min(size.m, kRows);
  const std::int64_t first = size.transposed ? 2 * rows * size.k : 0;
  return threads * (kOther + kColumns * (4 * rows + 2 * std::min(size.k, kDepth)) + first);
}

/// The most that this thread holds at once of what it asks of torch's allocator while this is set.
class HeldBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*at*/,
                         std::int64_t bytes,
                         std::size_t /*allocated*/,
                         std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    held_ += bytes;
    most_ = std::max(most_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  std::int64_t held_ = 0;
  std::int64_t most_ = 0;
};

/// A matrix of zeros beside torch's allocator, or the transpose of one.
at::Tensor zeros_aside(std::int64_t rows,
                       std::int64_t columns,
                       bool transposed,
                       at::ScalarType dtype) {
  void* const memory =
      std::calloc(static_cast<std::size_t>(rows * columns), at::elementSize(dtype));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  const at::Tensor stored = at::from_blob(
      memory,
      transposed ? at::IntArrayRef{columns, rows} : at::IntArrayRef{rows, columns},
      [](void* p) { std::free(p); },  // NOLINT: calloc's
      at::TensorOptions(dtype));
  return transposed ? stored.t() : stored;
}

/// Multiplies once; nothing of a large product.
std::optional<std::int64_t> try_scratch(const ProductSize& size, at::ScalarType dtype) {
  constexpr std::int64_t kMostWork = std::int64_t{1} << 32U;   // some 20 ms of two cores
  constexpr std::int64_t kMostNumel = std::int64_t{1} << 26U;  // of all matrices
  const auto& [m, k, n, transposed, second_transposed] = size;
  if (m * k * n > kMostWork || m * k + k * n + m * n > kMostNumel || m * k * n == 0) {
    return {};
  }
  const at::Tensor a = zeros_aside(m, k, transposed, dtype);
  const at::Tensor b = zeros_aside(k, n, second_transposed, dtype);
  const auto held = std::make_shared<HeldBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, held);
  try {
    const at::Tensor result = product(a, b);
    return held->most() - static_cast<std::int64_t>(result.nbytes());
  } catch (const c10::OutOfMemoryError&) {
    return {};  // a small device is simulated
  }
}

/// The same, remembered for as long as the process lives.
std::optional<std::int64_t> seen_scratch(const ProductSize& size, at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::tuple<ProductSize, at::ScalarType, int>, std::optional<std::int64_t>> seen;
  const std::lock_guard lock(mutex);
  const std::tuple key(size, dtype, at::get_num_threads());
  auto found = seen.find(key);
  if (found == seen.end()) {
    found = seen.emplace(key, try_scratch(size, dtype)).first;
  }
  return found->second;
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
  const auto& [m, k, n, transposed, second_transposed] = size;
  if (!multiplies_fast(dtype)) {
    const auto wide = static_cast<std::int64_t>(at::elementSize(wide_dtype(dtype)));
    return wide * (m * k + k * n + m * n);
  }
  const bool by_onednn = dtype == at::kBFloat16 || better_by_onednn(size, dtype);
  if (!by_onednn) {
    return 0;  // of MKL's own memory torch knows nothing
  }
  if (const std::optional<std::int64_t> seen = seen_scratch(size, dtype)) {
    return *seen;
  }
  return dtype == at::kBFloat16 ? onednn_bf16_scratch(size, at::get_num_threads())
                                : onednn_fp32_scratch(size, at::get_num_threads());
}

}  // namespace colossal::detail
