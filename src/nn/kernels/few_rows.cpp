// Products of a few rows with a matrix: each weight is read once for four rows. Explicit vectors,
// no loops left to the compiler's taste: every row goes through the same operations in the same
// order.
#include "nn/kernels/few_rows.hpp"

#include "nn/kernels/cuda/few_rows.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/tile.hpp"

#include <ATen/ops/empty.h>

#include <array>

namespace colossal::kernels {

namespace {

constexpr std::int64_t kRows = 4;  // at a time: their sums and one vector of weights fit registers

using Vector8 [[gnu::vector_size(64)]] = double;
using UnalignedVector8 [[gnu::vector_size(64), gnu::aligned(8), gnu::may_alias]] = double;

/// 64 bytes of T: in a register, and anywhere in memory.
template <class T>
struct Vector;
template <>
struct Vector<float> {
  using Sum = Vector16;
  using Memory = UnalignedVector16;
};
template <>
struct Vector<double> {
  using Sum = Vector8;
  using Memory = UnalignedVector8;
};

template <class T>
struct Product {
  const T* x;       // [rows][in]
  const T* weight;  // [out][in]
  const T* bias;    // null: none
  T* y;             // [rows][out]
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

/// The lanes of a vector, added in pairs.
template <class T, std::size_t Lanes>
[[gnu::always_inline]] inline T sum_of(std::array<T, Lanes> lanes) noexcept {
  for (std::size_t half = Lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

/// Output `o` of rows [first, first + Rows).
template <int Rows, class T>
[[gnu::always_inline]] inline void output(const Product<T>& p,
                                          std::int64_t first,
                                          std::int64_t o) noexcept {
  using Sum = typename Vector<T>::Sum;
  using Memory = typename Vector<T>::Memory;
  constexpr std::int64_t kLanes = sizeof(Sum) / sizeof(T);
  const T* const weight = p.weight + o * p.in;
  const T* const x = p.x + first * p.in;
  std::array<Sum, Rows> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= p.in; i += kLanes) {
    const Sum w = *reinterpret_cast<const Memory*>(weight + i);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      sums[r] += *reinterpret_cast<const Memory*>(x + r * p.in + i) * w;
    }
  }
  for (int r = 0; r < Rows; ++r) {
    std::array<T, static_cast<std::size_t>(kLanes)> lanes;
    *reinterpret_cast<Memory*>(lanes.data()) = sums[r];
    T total = sum_of(lanes);
    for (std::int64_t rest = i; rest < p.in; ++rest) {
      total += x[r * p.in + rest] * weight[rest];
    }
    p.y[(first + r) * p.out + o] = p.bias == nullptr ? total : total + p.bias[o];
  }
}

/// Output `o` of the kRows rows from `first`, or of those that are left.
template <class T>
[[gnu::always_inline]] inline void output_rows(const Product<T>& p,
                                               std::int64_t first,
                                               std::int64_t o) noexcept {
  switch (p.rows - first) {
    case 1:
      output<1>(p, first, o);
      break;
    case 2:
      output<2>(p, first, o);
      break;
    case 3:
      output<3>(p, first, o);
      break;
    default:
      output<4>(p, first, o);
      break;
  }
}

template <class T>
[[gnu::always_inline]] inline void outputs(const Product<T>& p,
                                           std::int64_t begin,
                                           std::int64_t end) noexcept {
  for (std::int64_t o = begin; o < end; ++o) {
    for (std::int64_t first = 0; first < p.rows; first += kRows) {
      output_rows(p, first, o);
    }
  }
}

// One entry per dtype: target_clones works on plain functions only.

COLOSSAL_FMA_CLONES void multiply_rows(const Product<float>& p, std::int64_t b, std::int64_t e) {
  outputs(p, b, e);
}
COLOSSAL_FMA_CLONES void multiply_rows(const Product<double>& p, std::int64_t b, std::int64_t e) {
  outputs(p, b, e);
}

}  // namespace

at::Tensor linear_few_rows(const at::Tensor& x_mi,
                           const at::Tensor& weight_oi,
                           const at::Tensor& bias_o) {
  if (x_mi.is_cuda()) {
    return cuda::linear_few_rows(x_mi, weight_oi, bias_o);
  }
  const std::int64_t rows = x_mi.size(0);
  const std::int64_t out = weight_oi.size(0);
  at::Tensor y_mo = at::empty({rows, out}, x_mi.options());
  with_wide(x_mi, [&]<class T>(T) {
    const Product<T> product{x_mi.const_data_ptr<T>(),
                             weight_oi.const_data_ptr<T>(),
                             bias_o.defined() ? bias_o.const_data_ptr<T>() : nullptr,
                             y_mo.mutable_data_ptr<T>(),
                             rows,
                             x_mi.size(1),
                             out};
    parallel_rows(out, rows * product.in, [&](std::int64_t begin, std::int64_t end) {
      multiply_rows(product, begin, end);
    });
  });
  return y_mo;
}

}  // namespace colossal::kernels
