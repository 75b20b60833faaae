// Where does each element of a tensor live? Pure data and functions: no communication
// (architecture 5.3).
#pragma once

#include "core/types.hpp"

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// Mesh axes, outermost first; ranks are row-major in this order. data = dr x dp, dp = ranks of one
/// shard group, dr its replicas; t0..t2: tensor axes of the mode.
enum class Axis : std::uint8_t { dr, dp, pp, sp, t0, t1, t2 };
inline constexpr int kNumAxes = 7;

/// "dr", "dp", ...
[[nodiscard]] std::string_view name(Axis axis) noexcept;

/// A set of axes, bit i = Axis(i).
using AxisSet = std::bitset<kNumAxes>;

/// The set of these axes.
[[nodiscard]] inline AxisSet axes(std::initializer_list<Axis> list) {
  AxisSet set;
  for (const Axis axis : list) {
    set.set(static_cast<std::size_t>(axis));
  }
  return set;
}

/// The axes that hold different samples: dr, dp.
[[nodiscard]] inline AxisSet data_axes() {
  return axes({Axis::dr, Axis::dp});
}

/// Sizes of all axes.
struct MeshShape {
  std::int64_t dr = 1, dp = 1, pp = 1, sp = 1, t0 = 1, t1 = 1, t2 = 1;
};

/// Coordinates of one rank among all. Pure: knows neither processes nor devices.
class Mesh {
 public:
  /// Errors: internal "mesh-rank" if rank is outside the mesh or a size is < 1.
  Mesh(const MeshShape& shape, int rank);
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] int size(Axis axis) const noexcept;
  [[nodiscard]] int coord(Axis axis) const noexcept;
  /// Product of the sizes of these axes.
  [[nodiscard]] int size(const AxisSet& set) const noexcept;
  /// Row-major index of this rank among peers(set).
  [[nodiscard]] int index(const AxisSet& set) const noexcept;
  /// Global ranks that differ from this rank only in these axes, row-major; contains this rank.
  [[nodiscard]] std::vector<int> peers(const AxisSet& set) const;

 private:
  std::vector<int> sizes_;
  std::vector<int> coords_;
  int rank_;
};

/// How one dim is split. Axes major to minor; blocks: fused parts of the dim (q,k,v), each split on
/// its own; empty: one.
struct DimShard {
  std::vector<Axis> axes;
  std::vector<std::int64_t> blocks;
  bool operator==(const DimShard&) const = default;
};

/// Per tensor and axis: sharded (named in dims), replicated (equal values, used for different
/// work), partial (addends), or invariant (named nowhere: equal values, equal work). dims may be
/// shorter than the tensor: the rest is whole.
struct Layout {
  std::vector<DimShard> dims;
  AxisSet replicated;
  AxisSet partial;

  /// Axes that shard some dim.
  [[nodiscard]] AxisSet sharded() const;
  /// Layout of the gradient: replicated <-> partial, sharded and invariant stay.
  [[nodiscard]] Layout grad() const;
  bool operator==(const Layout&) const = default;
};

/// A box both sides agree on: extent elements at global_offset of the whole tensor = at
/// local_offset of the local one.
struct Region {
  Shape global_offset;
  Shape local_offset;
  Shape extent;
  bool operator==(const Region&) const = default;
};

/// Shape of this rank's part. Errors: config "dim-divisible" naming dim, size and axes if a dim
/// does not divide.
[[nodiscard]] Shape local_shape(const Layout& layout, const Shape& global, const Mesh& mesh);

/// The boxes this rank holds, in order of local offsets (one per combination of blocks).
[[nodiscard]] std::vector<Region> regions(const Layout& layout,
                                          const Shape& global,
                                          const Mesh& mesh);

/// Boxes that cover elements [begin, end) of the row-major local tensor of shape `local` whose
/// parts are `parts`; at most 2n-1 boxes per part for n dims. Offsets of the result's local side
/// stay those of the local tensor.
[[nodiscard]] std::vector<Region> flat_range(std::span<const Region> parts,
                                             const Shape& local,
                                             std::int64_t begin,
                                             std::int64_t end);

}  // namespace colossal
