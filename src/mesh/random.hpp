// Where do random numbers come from? A counter-based generator keyed by meaning and global element
// index, so that initial weights and dropout masks are equal on every layout (tensor-parallel
// sections 9, 10).
#pragma once

#include "mesh/layout.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace colossal {

/// Key of a named stream: splitmix64 chain of seed and FNV-1a of the name.
[[nodiscard]] std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept;

/// Standard normal value of a word, by a polynomial inverse of the distribution function in fp32:
/// relative error < 1e-6, |z| <= 6.34. The word read as signed orders the values.
[[nodiscard]] float normal_from_word(std::uint32_t word) noexcept;

/// How a parameter's initial values are drawn.
struct InitSpec {
  enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
  double std = 0;  ///< normal only
};

/// Fills `local` (a contiguous local tensor, any floating dtype) with the initial values of the
/// boxes `parts` of the tensor of logical shape `global`: element i (row-major, unpadded) = f(seed,
/// name, i). Elements outside the logical shape (padding) and outside `parts` become zero. Values
/// are drawn in fp32 and are equal on every layout.
void initialize(at::Tensor& local,
                const InitSpec& init,
                std::uint64_t key,
                const Shape& global,
                std::span<const Region> parts);

}  // namespace colossal
