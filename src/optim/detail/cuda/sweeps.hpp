// How do rules reach shards that are in the memory of a GPU? One launch for dozens of parameters of
// a shard; types are converted in registers, so that each array is passed once.
#pragma once

#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/tiles.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace colossal::detail::cuda {

/// Elements [at, at + count) of a shard, all of one parameter; no padding.
struct Slice {
  std::int64_t at = 0;
  std::int64_t count = 0;
  std::uint32_t element = 0;  ///< number of the first one in the parameter's local tensor
  std::uint32_t key = 0;      ///< of the random words of this parameter and step
};

/// One shard and what a sweep does on it.
struct Sweep {
  const ShardArrays& arrays;
  at::ScalarType master = at::kFloat;  ///< type of the masters, in which is computed
  std::span<const Slice> slices;
  at::Tensor squares;  ///< [slices, 2] fp64 of the device: written by measuring sweeps
};

/// adam() of flat_kernels.hpp, bit for bit, with the factors of each slice; working copies follow.
void adam(const Sweep& sweep, std::span<const AdamFactors> factors);
/// lamb_moments(), then lamb_squares() into Sweep::squares, in an order that depends on sizes only.
void lamb_moments(const Sweep& sweep, std::span<const LambFactors> factors);
/// lamb_apply(); working copies follow.
void lamb_apply(const Sweep& sweep, std::span<const LambFactors> factors);
/// sgd() with momentum if there is a state; working copies follow.
void sgd(const Sweep& sweep, std::span<const SgdFactors> factors);
/// Squares of masters (0 if there are none) and of gradients into Sweep::squares.
void squares(const Sweep& sweep);

}  // namespace colossal::detail::cuda
