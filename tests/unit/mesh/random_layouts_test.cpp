// Do the laws of layouts hold for any mesh, tensor and split, not only for those we thought of?
#include "mesh/layout.hpp"
#include "mesh/random.hpp"
#include "support/catch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace colossal {
namespace {

constexpr std::array kAxes = {Axis::dr, Axis::dp, Axis::pp, Axis::sp, Axis::t0, Axis::t1, Axis::t2};

/// Numbers that look random, the same every time.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// From 0 to n - 1.
  std::int64_t below(std::int64_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state_ >> 33U) % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

/// A mesh of 1 to 24 ranks, a layout that uses some of its axes, and a tensor that divides.
struct Draw {
  MeshShape mesh;
  Layout layout;
  Shape global;
  std::string text;
};

MeshShape draw_mesh(Draws& draws) {
  MeshShape mesh;
  std::int64_t world = 1;
  for (std::int64_t* size :
       {&mesh.dr, &mesh.dp, &mesh.pp, &mesh.sp, &mesh.t0, &mesh.t1, &mesh.t2}) {
    const std::int64_t wanted = 1 + draws.below(3);
    *size = world * wanted <= 24 ? wanted : 1;
    world *= *size;
  }
  return mesh;
}

Draw draw(std::uint64_t seed) {
  Draws draws(seed);
  Draw result;
  result.mesh = draw_mesh(draws);
  const Mesh mesh(result.mesh, 0);
  const std::int64_t dims = draws.below(4);
  result.layout.dims.resize(static_cast<std::size_t>(dims));
  for (const Axis axis : kAxes) {  // each axis shards one dim, or is replicated, partial or neither
    const std::int64_t choice = draws.below(dims + 3);
    if (axis == Axis::pp || choice == dims) {
      continue;  // invariant
    }
    if (choice > dims) {
      (choice == dims + 1 ? result.layout.replicated : result.layout.partial)
          .set(static_cast<std::size_t>(axis));
      continue;
    }
    DimShard& shard = result.layout.dims[static_cast<std::size_t>(choice)];
    shard.axes.insert(
        shard.axes.begin() + draws.below(static_cast<std::int64_t>(shard.axes.size()) + 1), axis);
  }
  for (DimShard& shard : result.layout.dims) {
    std::int64_t parts = 1;
    for (const Axis axis : shard.axes) {
      parts *= mesh.size(axis);
    }
    std::int64_t size = parts * (1 + draws.below(3));
    if (draws.below(3) == 0) {  // fused parts, each divisible on its own
      shard.blocks = {size, parts * (1 + draws.below(2))};
      size += shard.blocks.back();
    }
    result.global.push_back(size);
  }
  result.text =
      fmt::format("seed {}: shape {} on {} ranks", seed, result.global, mesh.world_size());
  return result;
}

/// Writes `value(global index)` into each element of the boxes of a local tensor.
std::vector<std::int64_t> held(const std::vector<Region>& boxes,
                               const Shape& local,
                               const Shape& global) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(numel(local)), -1);
  for (const Region& box : boxes) {
    for (std::int64_t i = 0; i < numel(box.extent); ++i) {
      std::int64_t rest = i;
      std::int64_t from = 0;
      std::int64_t to = 0;
      std::int64_t from_stride = 1;
      std::int64_t to_stride = 1;
      for (std::size_t d = local.size(); d-- > 0;) {
        const std::int64_t place = rest % box.extent[d];
        rest /= box.extent[d];
        from += (box.local_offset[d] + place) * from_stride;
        to += (box.global_offset[d] + place) * to_stride;
        from_stride *= local[d];
        to_stride *= global[d];
      }
      REQUIRE(values[static_cast<std::size_t>(from)] == -1);  // named once
      values[static_cast<std::size_t>(from)] = to;
    }
  }
  return values;
}

constexpr std::uint64_t kDraws = 150;

}  // namespace

TEST_CASE("any layout holds each element on as many ranks as it has copies", "[mesh][random]") {
  std::set<std::size_t> dims_seen;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Draw d = draw(seed);
    INFO(d.text);
    dims_seen.insert(d.global.size());
    std::vector<int> copies(static_cast<std::size_t>(numel(d.global)), 0);
    for (int rank = 0; rank < Mesh(d.mesh, 0).world_size(); ++rank) {
      const Mesh mesh(d.mesh, rank);
      const Shape local = local_shape(d.layout, d.global, mesh);
      REQUIRE(numel(local) * mesh.size(d.layout.sharded()) == numel(d.global));
      for (const std::int64_t index : held(regions(d.layout, d.global, mesh), local, d.global)) {
        REQUIRE(index >= 0);  // no element of the local tensor is left out
        ++copies[static_cast<std::size_t>(index)];
      }
    }
    const Mesh any(d.mesh, 0);
    const int expected = any.world_size() / any.size(d.layout.sharded());
    REQUIRE(std::ranges::all_of(copies, [&](int count) { return count == expected; }));
  }
  CHECK(dims_seen.size() == 4);  // scalars to three dims
}

TEST_CASE("ranks that differ only in axes that do not shard hold the same", "[mesh][random]") {
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Draw d = draw(seed);
    INFO(d.text);
    AxisSet others = ~d.layout.sharded();
    for (int rank = 0; rank < Mesh(d.mesh, 0).world_size(); ++rank) {
      const Mesh mesh(d.mesh, rank);
      const std::vector<Region> own = regions(d.layout, d.global, mesh);
      for (const int peer : mesh.peers(others)) {
        REQUIRE((regions(d.layout, d.global, Mesh(d.mesh, peer)) == own));
      }
      // And those that differ in one that shards hold nothing in common.
      const std::vector<int> shards = mesh.peers(d.layout.sharded());
      const int next =
          shards[static_cast<std::size_t>((mesh.index(d.layout.sharded()) + 1)) % shards.size()];
      REQUIRE((next == rank || !(regions(d.layout, d.global, Mesh(d.mesh, next)) == own)));
    }
  }
}

TEST_CASE("any cut of a flat tensor gives back its elements in order", "[mesh][random]") {
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Draw d = draw(seed);
    Draws draws(seed + 1000);
    const Mesh mesh(d.mesh, static_cast<int>(draws.below(Mesh(d.mesh, 0).world_size())));
    INFO(d.text << ", rank " << mesh.rank());
    const Shape local = local_shape(d.layout, d.global, mesh);
    const std::vector<Region> parts = regions(d.layout, d.global, mesh);
    const std::vector<std::int64_t> whole = held(parts, local, d.global);
    const std::int64_t size = numel(local);
    for (std::int64_t begin = 0; begin < size;) {
      const std::int64_t end = begin + 1 + draws.below(size - begin);
      const auto piece = held(flat_range(parts, local, begin, end), local, d.global);
      for (std::int64_t i = 0; i < size; ++i) {
        const bool inside = begin <= i && i < end;
        REQUIRE(piece[static_cast<std::size_t>(i)] ==
                (inside ? whole[static_cast<std::size_t>(i)] : -1));
      }
      begin = end;
    }
  }
}

TEST_CASE("the layout of a gradient swaps two states and comes back", "[mesh][random]") {
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Layout layout = draw(seed).layout;
    const Layout grad = layout.grad();
    CHECK((grad.dims == layout.dims));
    CHECK(grad.replicated == layout.partial);
    CHECK(grad.partial == layout.replicated);
    CHECK(grad.sharded() == layout.sharded());
    CHECK((grad.grad() == layout));
    CHECK((layout.sharded() & layout.replicated).none());
  }
}

TEST_CASE("coordinates, indices and peers of any mesh agree", "[mesh][random]") {
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    Draws draws(seed);
    const MeshShape shape = draw_mesh(draws);
    const AxisSet set(static_cast<unsigned long>(draws.below(1 << kNumAxes)));
    std::set<std::vector<int>> places;
    for (int rank = 0; rank < Mesh(shape, 0).world_size(); ++rank) {
      const Mesh mesh(shape, rank);
      std::vector<int> place;
      int number = 0;
      for (const Axis axis : kAxes) {
        REQUIRE((0 <= mesh.coord(axis) && mesh.coord(axis) < mesh.size(axis)));
        number = number * mesh.size(axis) + mesh.coord(axis);
        place.push_back(mesh.coord(axis));
      }
      CHECK(number == rank);
      places.insert(place);
      const std::vector<int> peers = mesh.peers(set);
      REQUIRE(static_cast<int>(peers.size()) == mesh.size(set));
      CHECK(peers[static_cast<std::size_t>(mesh.index(set))] == rank);
      for (const int peer : peers) {
        const Mesh other(shape, peer);
        CHECK(other.peers(set) == peers);  // membership is mutual
        for (const Axis axis : kAxes) {
          CHECK(
              (set.test(static_cast<std::size_t>(axis)) || other.coord(axis) == mesh.coord(axis)));
        }
      }
    }
    CHECK(places.size() == static_cast<std::size_t>(Mesh(shape, 0).world_size()));
  }
}

TEST_CASE("initial values are those of the whole tensor in any layout and dtype",
          "[mesh][random]") {
  const InitSpec normal{InitSpec::Kind::normal, 0.02};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Draw d = draw(seed);
    INFO(d.text);
    const at::ScalarType dtype =
        std::array{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}[seed % 4];
    at::Tensor whole = at::empty(d.global, dtype);
    const Region all{Shape(d.global.size(), 0), Shape(d.global.size(), 0), d.global};
    initialize(whole, normal, stream_key(seed, "w"), d.global, {&all, 1});
    const at::Tensor flat = whole.view(-1);
    for (int rank = 0; rank < Mesh(d.mesh, 0).world_size(); ++rank) {
      const Mesh mesh(d.mesh, rank);
      const Shape local_size = local_shape(d.layout, d.global, mesh);
      const std::vector<Region> parts = regions(d.layout, d.global, mesh);
      at::Tensor local = at::empty(local_size, dtype);
      initialize(local, normal, stream_key(seed, "w"), d.global, parts);
      std::vector<std::int64_t> index = held(parts, local_size, d.global);
      at::Tensor places = at::zeros({static_cast<std::int64_t>(index.size())}, at::kLong);
      std::ranges::copy(index, places.mutable_data_ptr<std::int64_t>());
      REQUIRE(at::equal(local.view(-1), flat.index_select(0, places)));
    }
  }
}

TEST_CASE("initial values know seed and name, and fill nothing beside their boxes",
          "[mesh][random]") {
  const Shape shape = {13, 7};
  const Region part{{0, 0}, {1, 2}, {9, 4}};
  const auto made = [&](std::uint64_t seed, const char* name) {
    at::Tensor local = at::empty({12, 8}, at::kFloat);
    local.fill_(-5);
    initialize(local, {InitSpec::Kind::normal, 1.0}, stream_key(seed, name), shape, {&part, 1});
    return local;
  };
  const at::Tensor first = made(1, "a");
  CHECK(at::equal(first, made(1, "a")));
  CHECK_FALSE(at::equal(first, made(2, "a")));
  CHECK_FALSE(at::equal(first, made(1, "b")));
  CHECK(first.ne(0).sum().item<std::int64_t>() == 9 * 4);
  CHECK(first.narrow(0, 1, 9).narrow(1, 2, 4).ne(0).all().item<bool>());
  at::Tensor ones = at::empty({12, 8}, at::kHalf);
  initialize(ones, {InitSpec::Kind::ones, 0}, 7, shape, {&part, 1});
  CHECK(ones.sum().item<double>() == 36);
  initialize(ones, {InitSpec::Kind::zeros, 0}, 7, shape, {&part, 1});
  CHECK(ones.abs().sum().item<double>() == 0);
}

}  // namespace colossal
