// How are matrices multiplied? By LibTorch, in fp32 where it has no fast way for 16 bits, and by
// the faster of its two libraries.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>

namespace colossal::detail {

/// a b; sums in fp32 where a and b have 16 bits.
[[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b);

/// Sizes of a product [m,k] [k,n].
struct ProductSize {
  std::int64_t m = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
  bool transposed = false;  ///< the first matrix is given as its transpose
  bool second_transposed = false;
  bool with_bias = false;
  auto operator<=>(const ProductSize&) const = default;
};

enum class ProductLibrary : std::uint8_t { mkl, onednn, widened };

/// Which library multiplies on a CPU; `widened`: MKL, from copies in fp32.
[[nodiscard]] ProductLibrary library_of(const ProductSize& size, at::ScalarType dtype);

/// Bytes that a product on a CPU takes beside its result with the threads there are now: fp32
/// copies, or the buffers of oneDNN's kernels, whose rules differ from processor to processor and
/// jump with the number of threads (16 may each hold a whole result). A product that is not large
/// is therefore multiplied once, with zeros; of a large one the buffers of ordinary kernels are
/// counted.
[[nodiscard]] std::int64_t product_scratch_bytes(const ProductSize& size, at::ScalarType dtype);

/// bias + a b, rounded once.
[[nodiscard]] at::Tensor product(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b);

}  // namespace colossal::detail
