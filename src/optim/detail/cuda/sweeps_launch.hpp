// What does a launch over flat arrays get? All by value: nothing is copied to the device before.
#pragma once

#include "optim/detail/flat_kernels.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::detail::cuda {

/// What the elements of an array are.
enum class Kind : std::uint8_t { none, wide, bf16, fp16 };

/// An array of a shard; `wide` is the type of the masters.
struct FlatArray {
  void* data = nullptr;
  Kind kind = Kind::none;
};

/// The arrays of a shard. Vectors of 4 elements are used if all of them are aligned for it.
struct FlatArrays {
  FlatArray master;
  FlatArray grad;
  FlatArray working;
  FlatArray states[2];
  bool aligned = false;
};

inline constexpr int kSlices = 48;            ///< parameters of a launch
inline constexpr std::int64_t kBlock = 4096;  ///< elements of a block

/// As Slice.
struct FlatSlice {
  std::int64_t at = 0;
  std::int64_t count = 0;
  std::uint32_t element = 0;
  std::uint32_t key = 0;
};

/// One launch: slices with their factors, and which blocks work on them.
template <class Factors>
struct Batch {
  FlatArrays arrays;
  int num_slices = 0;
  FlatSlice slices[kSlices];
  Factors factors[kSlices];
  unsigned first_block[kSlices + 1] = {};  ///< of each slice, and of none
  double* partial = nullptr;               ///< [blocks, 2], of measuring sweeps
  double* squares = nullptr;               ///< [num_slices, 2]
};

/// No factors.
struct Nothing {};

/// Blocks that a slice needs: groups of 4 elements begin at multiples of 4 in the shard.
[[nodiscard]] inline unsigned blocks_of(const FlatSlice& slice) {
  const std::int64_t groups = (slice.at + slice.count + 3) / 4 - slice.at / 4;
  return static_cast<unsigned>((4 * groups + kBlock - 1) / kBlock);
}

// Each of these starts one sweep; `fp64`: the masters' type is fp64, else fp32.
cudaError_t launch_adam(const Batch<AdamFactors>& batch, bool fp64, cudaStream_t stream);
cudaError_t launch_lamb_moments(const Batch<LambFactors>& batch, bool fp64, cudaStream_t stream);
cudaError_t launch_lamb_apply(const Batch<LambFactors>& batch, bool fp64, cudaStream_t stream);
cudaError_t launch_sgd(const Batch<SgdFactors>& batch, bool fp64, cudaStream_t stream);
cudaError_t launch_squares(const Batch<Nothing>& batch, bool fp64, cudaStream_t stream);

}  // namespace colossal::detail::cuda
