// How are columns summed without atomics? In two stages: each row of blocks sums some rows of the
// matrix, then the partial sums are added in their order.
#pragma once

#include "nn/kernels/cuda/element_type.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Where sums of columns go.
struct ColumnTarget {
  void* out = nullptr;
  ElementType type = ElementType::fp32;
  bool adds = false;  ///< to what is there, rounded once
};

inline constexpr int kColumnTargets = 3;

/// Partial sums: `rows` rows of num_targets times `width` wide elements, whose columns are summed.
struct ColumnParts {
  const void* partial_pf = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  ColumnTarget targets[kColumnTargets] = {};  ///< of `width` columns each
  int num_targets = 1;
};

/// A matrix whose columns are summed; fp32 sums for 16 bits.
struct ColumnSums {
  const void* x_mf = nullptr;
  const void* factor_m = nullptr;  ///< wide, of each row; null: 1
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;     ///< elements between rows; 0: width
  void* partial_pf = nullptr;  ///< column_parts() rows of sums
  ColumnTarget out_f;
};

/// Rows of partial sums for a matrix of this size: a function of the shape, so that the order of
/// additions is one too.
[[nodiscard]] std::int64_t column_parts(std::int64_t rows, std::int64_t width, ElementType type);

/// Sums of all columns.
cudaError_t launch_column_sums(ElementType type, const ColumnSums& sums, cudaStream_t stream);

/// Second stage alone. `type`: of the elements that were summed, fp32 sums for 16 bits.
cudaError_t launch_add_parts(ElementType type, const ColumnParts& parts, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
