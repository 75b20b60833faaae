// How do coordinates, shapes, boxes and flat ranges follow from a layout?
#include "mesh/layout.hpp"

#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace colossal {

namespace {

constexpr std::array<std::string_view, kNumAxes> kAxisNames = {
    "dr", "dp", "pp", "sp", "t0", "t1", "t2"};

/// One contiguous stretch of one dim: `extent` elements at `global` of the whole, `local` of the
/// part.
struct Piece {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t extent = 0;
};

struct Split {
  std::int64_t count = 1;  ///< parts along the dim
  std::int64_t index = 0;  ///< this rank's part
};

Split split_of(const DimShard& shard, const Mesh& mesh) {
  Split split;
  for (const Axis axis : shard.axes) {
    split.count *= mesh.size(axis);
    split.index = split.index * mesh.size(axis) + mesh.coord(axis);
  }
  return split;
}

std::string axis_list(const DimShard& shard) {
  std::vector<std::string_view> names;
  for (const Axis axis : shard.axes) {
    names.push_back(name(axis));
  }
  return fmt::format("{}", fmt::join(names, "*"));
}

/// The pieces of dim `d` (size `size`) this rank holds, one per block.
std::vector<Piece> pieces_of(const Layout& layout,
                             std::size_t d,
                             std::int64_t size,
                             const Mesh& mesh) {
  if (d >= layout.dims.size()) {
    return {{0, 0, size}};
  }
  const DimShard& shard = layout.dims[d];
  const Split split = split_of(shard, mesh);
  const std::vector<std::int64_t> blocks =
      shard.blocks.empty() ? std::vector<std::int64_t>{size} : shard.blocks;
  const std::int64_t total = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  check(total == size,
        ErrorKind::internal,
        "layout-blocks",
        "blocks of dim {} add up to {}, its size is {}",
        d,
        total,
        size);
  std::vector<Piece> pieces;
  Piece next;
  std::int64_t start = 0;
  for (const std::int64_t block : blocks) {
    check(block % split.count == 0,
          ErrorKind::config,
          "dim-divisible",
          "dim {}: a part of size {} does not divide into {} over {}; change the size or the axes",
          d,
          block,
          split.count,
          axis_list(shard));
    next.extent = block / split.count;
    next.global = start + split.index * next.extent;
    pieces.push_back(next);
    next.local += next.extent;
    start += block;
  }
  return pieces;
}

/// Appends boxes that cover the elements [begin, end) of a row-major tensor of shape `shape`, of
/// which dims before `dim` are fixed at `at` (extent 1 there). At most 2 (n - dim) - 1 boxes: a
/// head, whole rows, a tail.
class FlatCover {
 public:
  explicit FlatCover(const Shape& shape) : shape_(shape), strides_(shape.size(), 1) {
    for (std::size_t d = shape.size(); d-- > 1;) {
      strides_[d - 1] = strides_[d] * shape[d];
    }
  }

  std::vector<Region> boxes(std::int64_t begin, std::int64_t end) {
    Shape at(shape_.size(), 0);
    cover(0, at, begin, end);
    return std::move(boxes_);
  }

 private:
  void cover(std::size_t dim, Shape& at, std::int64_t begin, std::int64_t end) {
    if (begin == end) {
      return;
    }
    const std::int64_t stride = dim < strides_.size() ? strides_[dim] : 1;
    if (begin % stride != 0) {  // the rest of a row that began before
      const std::int64_t stop = std::min(end, (begin / stride + 1) * stride);
      row(dim, at, begin, stop);
      begin = stop;
    }
    if (const std::int64_t rows = (end - begin) / stride; rows > 0) {
      add(dim, at, begin / stride, rows);
      begin += rows * stride;
    }
    if (begin < end) {
      row(dim, at, begin, end);
    }
  }

  void row(std::size_t dim, Shape& at, std::int64_t begin, std::int64_t end) {
    const std::int64_t base = begin / strides_[dim];
    at[dim] = base;
    cover(dim + 1, at, begin - base * strides_[dim], end - base * strides_[dim]);
    at[dim] = 0;
  }

  void add(std::size_t dim, const Shape& at, std::int64_t first, std::int64_t count) {
    Region box{at, at, shape_};
    if (dim < shape_.size()) {
      std::fill_n(box.extent.begin(), dim, 1);
      box.extent[dim] = count;
      box.local_offset[dim] = first;
    }
    boxes_.push_back(std::move(box));
  }

  const Shape& shape_;
  Shape strides_;
  std::vector<Region> boxes_;
};

/// Appends the part of `box` (local side) that lies in `part`, with its global place.
void intersect(const Region& box, const Region& part, std::vector<Region>& out) {
  Region both = part;
  for (std::size_t d = 0; d < part.extent.size(); ++d) {
    const std::int64_t low = std::max(box.local_offset[d], part.local_offset[d]);
    const std::int64_t high =
        std::min(box.local_offset[d] + box.extent[d], part.local_offset[d] + part.extent[d]);
    if (low >= high) {
      return;
    }
    both.local_offset[d] = low;
    both.global_offset[d] = part.global_offset[d] + (low - part.local_offset[d]);
    both.extent[d] = high - low;
  }
  out.push_back(std::move(both));
}

/// A box with one dim more.
Region longer_by(Region box, const Piece& piece) {
  box.global_offset.push_back(piece.global);
  box.local_offset.push_back(piece.local);
  box.extent.push_back(piece.extent);
  return box;
}

/// Every box with every piece of the next dim.
std::vector<Region> product(std::span<const Region> boxes, std::span<const Piece> pieces) {
  std::vector<Region> longer;
  for (const Region& box : boxes) {
    for (const Piece& piece : pieces) {
      longer.push_back(longer_by(box, piece));
    }
  }
  return longer;
}

}  // namespace

std::string_view name(Axis axis) noexcept {
  return kAxisNames[static_cast<std::size_t>(axis)];
}

Mesh::Mesh(const MeshShape& shape, int rank) : rank_(rank) {
  std::int64_t world = 1;
  for (const std::int64_t size :
       {shape.dr, shape.dp, shape.pp, shape.sp, shape.t0, shape.t1, shape.t2}) {
    check(size >= 1, ErrorKind::internal, "mesh-rank", "a mesh axis has size {}", size);
    sizes_.push_back(static_cast<int>(size));
    world *= size;
  }
  check(rank >= 0 && rank < world,
        ErrorKind::internal,
        "mesh-rank",
        "rank {} is outside a mesh of {} ranks",
        rank,
        world);
  coords_.resize(kNumAxes);
  int rest = rank;
  for (std::size_t a = kNumAxes; a-- > 0;) {
    coords_[a] = rest % sizes_[a];
    rest /= sizes_[a];
  }
}

int Mesh::world_size() const noexcept {
  return std::accumulate(sizes_.begin(), sizes_.end(), 1, std::multiplies<>());
}

int Mesh::size(Axis axis) const noexcept {
  return sizes_[static_cast<std::size_t>(axis)];
}

int Mesh::coord(Axis axis) const noexcept {
  return coords_[static_cast<std::size_t>(axis)];
}

int Mesh::size(const AxisSet& set) const noexcept {
  int product = 1;
  for (std::size_t a = 0; a < kNumAxes; ++a) {
    product *= set[a] ? sizes_[a] : 1;
  }
  return product;
}

int Mesh::index(const AxisSet& set) const noexcept {
  int index = 0;
  for (std::size_t a = 0; a < kNumAxes; ++a) {
    index = set[a] ? index * sizes_[a] + coords_[a] : index;
  }
  return index;
}

std::vector<int> Mesh::peers(const AxisSet& set) const {
  std::vector<int> ranks = {0};
  for (std::size_t a = 0; a < kNumAxes; ++a) {  // outer to inner: append each coordinate in turn
    const auto choices = static_cast<std::size_t>(set[a] ? sizes_[a] : 1);
    const int first = set[a] ? 0 : coords_[a];
    std::vector<int> longer(ranks.size() * choices);
    for (std::size_t i = 0; i < longer.size(); ++i) {
      longer[i] = ranks[i / choices] * sizes_[a] + first + static_cast<int>(i % choices);
    }
    ranks = std::move(longer);
  }
  return ranks;
}

AxisSet Layout::sharded() const {
  AxisSet set;
  for (const DimShard& dim : dims) {
    for (const Axis axis : dim.axes) {
      set.set(static_cast<std::size_t>(axis));
    }
  }
  return set;
}

Layout Layout::grad() const {
  return {dims, partial, replicated};
}

Shape local_shape(const Layout& layout, const Shape& global, const Mesh& mesh) {
  Shape local;
  for (std::size_t d = 0; d < global.size(); ++d) {
    const std::vector<Piece> pieces = pieces_of(layout, d, global[d], mesh);
    local.push_back(pieces.back().local + pieces.back().extent);
  }
  return local;
}

std::vector<Region> regions(const Layout& layout, const Shape& global, const Mesh& mesh) {
  std::vector<Region> boxes = {Region{}};
  for (std::size_t d = 0; d < global.size(); ++d) {
    boxes = product(boxes, pieces_of(layout, d, global[d], mesh));
  }
  return boxes;
}

std::vector<Region> flat_range(std::span<const Region> parts,
                               const Shape& local,
                               std::int64_t begin,
                               std::int64_t end) {
  check(0 <= begin && begin <= end && end <= numel(local),
        ErrorKind::internal,
        "flat-range",
        "range [{}, {}) is outside a tensor of {} elements",
        begin,
        end,
        numel(local));
  std::vector<Region> result;
  for (const Region& box : FlatCover(local).boxes(begin, end)) {
    for (const Region& part : parts) {
      intersect(box, part, result);
    }
  }
  return result;
}

}  // namespace colossal
