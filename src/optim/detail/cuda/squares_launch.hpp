// What does a launch over the gradients of many parameters get? All by value: nothing is copied to
// the device before.
#pragma once

#include "optim/detail/cuda/sweeps_launch.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::detail::cuda {

inline constexpr int kSquaresParts = 128;                  ///< arrays of a launch
inline constexpr std::int64_t kSquaresBlock = 1LL << 16U;  ///< elements of a block

/// An array of `count` elements.
struct SquaresPart {
  const void* data = nullptr;
  std::int64_t count = 0;
};

/// Arrays of one kind. `fp64`: what Kind::wide is, else fp32.
struct SquaresBatch {
  Kind kind = Kind::wide;
  bool fp64 = false;
  int num_parts = 0;
  SquaresPart parts[kSquaresParts];
  unsigned first_block[kSquaresParts + 1] = {};  ///< of each part, and of none
  double* partial = nullptr;                     ///< [blocks]
  double* sums = nullptr;                        ///< [num_parts]
};

/// Sums of squares of all parts, in an order that depends on their sizes only.
cudaError_t launch_squares_of(const SquaresBatch& batch, cudaStream_t stream);

}  // namespace colossal::detail::cuda
