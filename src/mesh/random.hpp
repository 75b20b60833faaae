// Where do random numbers come from? A counter-based generator keyed by meaning and global element index, so that initial
// weights and dropout masks are equal on every layout (tensor-parallel sections 9, 10).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "mesh/layout.hpp"

namespace colossal {

/// Philox4x32-10: four 32-bit words from a 64-bit key and a 128-bit counter. Source: Salmon et al. 2011.
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::array<std::uint32_t, 4> counter) noexcept;

/// Key of a named stream: splitmix64 chain of seed and FNV-1a of the name.
[[nodiscard]] std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept;

/// How a parameter's initial values are drawn.
struct InitSpec {
  enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
  double std = 0;  ///< normal only
};

/// Fills `local` (a contiguous local tensor, any floating dtype) with the initial values of the boxes `parts` of the
/// tensor of logical shape `global`: element i (row-major, unpadded) = f(seed, name, i). Elements outside the logical
/// shape (padding) and outside `parts` become zero. Values are drawn in fp32 and are equal on every layout.
void initialize(at::Tensor& local,
                const InitSpec& init,
                std::uint64_t key,
                const Shape& global,
                std::span<const Region> parts);

/// Which elements of the whole activation a local [B,S,H] (or [B,S]-like, H = 1) tensor holds.
struct ElementBox {
  std::array<std::int64_t, 3> offset = {0, 0, 0};  ///< of the local tensor in the whole
  std::array<std::int64_t, 3> global = {1, 1, 1};  ///< whole extents; [0] only matters through offset
};

}  // namespace colossal
