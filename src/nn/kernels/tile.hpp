// How does a kernel multiply small matrices that are in cache already? Tiles of a few rows times
// one vector, held in registers; no packing of the left side, which may be read transposed.
#pragma once

#include <array>
#include <cstdint>

namespace colossal::kernels {

/// Sixteen fp32 values: one AVX-512 register, two of AVX2, four of SSE.
using Vector16 [[gnu::vector_size(64)]] = float;
/// The same, anywhere in memory.
using UnalignedVector16 [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

inline constexpr std::int64_t kVector = 16;
inline constexpr std::int64_t kTileRows =
    6;  ///< 6 sums and their operands fit the registers of AVX2

/// A matrix in memory: element (r, c) at data[r * row + c * column].
struct MatrixView {
  const float* data;
  std::int64_t row;
  std::int64_t column;
};

/// What is multiplied: c[r][0..16) (+)= sum over k < depth of a(r, k) * b[k][0..16).
struct TileProduct {
  MatrixView a;
  const float* b;
  std::int64_t b_row;
  std::int64_t depth;
  float* c;
  std::int64_t c_row;
  bool accumulate;
};

/// One tile of Rows <= kTileRows rows.
template <int Rows>
[[gnu::always_inline]] inline void multiply_tile(const TileProduct& p) noexcept {
  std::array<Vector16, Rows> sums;
  for (int r = 0; r < Rows; ++r) {
    sums[r] =
        p.accumulate ? *reinterpret_cast<const UnalignedVector16*>(p.c + r * p.c_row) : Vector16{};
  }
  for (std::int64_t k = 0; k < p.depth; ++k) {
    const Vector16 b = *reinterpret_cast<const UnalignedVector16*>(p.b + k * p.b_row);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      sums[r] += p.a.data[r * p.a.row + k * p.a.column] * b;
    }
  }
  for (int r = 0; r < Rows; ++r) {
    *reinterpret_cast<UnalignedVector16*>(p.c + r * p.c_row) = sums[r];
  }
}

/// Tiles of Rows rows side by side: `columns` columns, a multiple of kVector.
template <int Rows>
[[gnu::always_inline]] inline void multiply_tiles(TileProduct tile, std::int64_t columns) noexcept {
  for (std::int64_t c = 0; c < columns; c += kVector) {
    multiply_tile<Rows>(tile);
    tile.b += kVector;
    tile.c += kVector;
  }
}

/// c[rows][columns] (+)= a[rows][depth] b[depth][columns]; `columns` a multiple of kVector.
[[gnu::always_inline]] inline void multiply(TileProduct p,
                                            std::int64_t rows,
                                            std::int64_t columns) noexcept {
  for (std::int64_t r = 0; r < rows; r += kTileRows) {
    TileProduct tile = p;
    tile.a.data += r * p.a.row;
    tile.c += r * p.c_row;
    switch (rows - r) {
      case 1:
        multiply_tiles<1>(tile, columns);
        break;
      case 2:
        multiply_tiles<2>(tile, columns);
        break;
      case 3:
        multiply_tiles<3>(tile, columns);
        break;
      case 4:
        multiply_tiles<4>(tile, columns);
        break;
      case 5:
        multiply_tiles<5>(tile, columns);
        break;
      default:
        multiply_tiles<6>(tile, columns);
        break;
    }
  }
}

}  // namespace colossal::kernels
