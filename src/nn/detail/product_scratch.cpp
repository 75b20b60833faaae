// What does a product on a CPU take beside its result? It is tried, unless it is large.
#include "nn/detail/product.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <tuple>

namespace colossal::detail {

namespace {

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
class HeldByThread final : public c10::MemoryReportingInfoBase {
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

/// Neither work nor memory that a plan would be felt to take; sizes that exist.
bool can_be_tried(const ProductSize& size) {
  constexpr std::int64_t kMostWork = std::int64_t{1} << 32U;   // 20 to 45 ms of two cores
  constexpr std::int64_t kMostNumel = std::int64_t{1} << 26U;  // of all matrices
  const auto [m, k, n] = std::tuple(size.m, size.k, size.n);
  return std::min({m, k, n}) > 0 && m * k + k * n + m * n <= kMostNumel && m * k * n <= kMostWork;
}

std::int64_t try_scratch(const ProductSize& size, at::ScalarType dtype) {
  const at::Tensor a = zeros_aside(size.m, size.k, size.transposed, dtype);
  const at::Tensor b = zeros_aside(size.k, size.n, size.second_transposed, dtype);
  const at::Tensor bias = zeros_aside(1, size.n, false, dtype)[0];
  const auto held = std::make_shared<HeldByThread>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, held);
  const at::Tensor result = size.with_bias ? product(bias, a, b) : product(a, b);
  return held->most() - static_cast<std::int64_t>(result.nbytes());
}

/// Remembered for as long as the process lives. Nothing of a large product, nor of one for which
/// there is no memory now.
std::optional<std::int64_t> seen_scratch(const ProductSize& size, at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::tuple<ProductSize, at::ScalarType, int>, std::int64_t> seen;
  if (!can_be_tried(size)) {
    return {};
  }
  const std::lock_guard lock(mutex);
  const std::tuple key(size, dtype, at::get_num_threads());
  if (const auto found = seen.find(key); found != seen.end()) {
    return found->second;
  }
  try {
    return seen.emplace(key, try_scratch(size, dtype)).first->second;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

std::int64_t product_scratch_bytes(const ProductSize& size, at::ScalarType dtype) {
  switch (library_of(size, dtype)) {
    case ProductLibrary::widened: {
      const auto wide = static_cast<std::int64_t>(at::elementSize(wide_dtype(dtype)));
      return wide * (size.m * size.k + size.k * size.n + size.m * size.n);
    }
    case ProductLibrary::mkl:
      return 0;  // of its own memory torch knows nothing
    case ProductLibrary::onednn:
      break;
  }
  if (const std::optional<std::int64_t> seen = seen_scratch(size, dtype)) {
    return *seen;
  }
  return dtype == at::kBFloat16 ? onednn_bf16_scratch(size, at::get_num_threads())
                                : onednn_fp32_scratch(size, at::get_num_threads());
}

}  // namespace colossal::detail
