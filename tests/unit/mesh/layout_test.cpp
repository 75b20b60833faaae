// Do layouts tile tensors exactly, on every mesh, in boxes and in flat ranges?
#include "mesh/layout.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace colossal {
namespace {

struct Case {
  std::string what;
  MeshShape mesh;
  Layout layout;
  Shape global;
};

int world_of(const MeshShape& shape) {
  return Mesh(shape, 0).world_size();
}

std::vector<Case> cases() {
  const Layout whole;
  const Layout rows{{{{Axis::t0}, {}}}, {}, {}};
  const Layout columns{{{}, {{Axis::t0}, {}}}, {}, {}};
  const Layout grid{{{{Axis::t0}, {}}, {{Axis::t1}, {}}}, {}, {}};
  const Layout nested{{{{Axis::t0, Axis::t1}, {}}}, {}, {}};
  const Layout reversed{{{{Axis::t1, Axis::t0}, {}}}, {}, {}};
  const Layout qkv{{{{Axis::t0}, {8, 4, 4}}}, {}, {}};
  const Layout qkv_grid{{{{Axis::t0}, {6, 4, 2}}, {{Axis::t1}, {3, 9}}}, {}, {}};
  const Layout middle{{{}, {{Axis::t0}, {}}, {}}, {}, {}};
  return {
      {"whole tensor on one rank", {}, whole, {3, 5}},
      {"scalar", {}, whole, {}},
      {"whole tensor on two ranks", {.t0 = 2}, whole, {3, 5}},
      {"rows on 2", {.t0 = 2}, rows, {4, 3}},
      {"columns on 2", {.t0 = 2}, columns, {3, 4}},
      {"vector on 2", {.t0 = 2}, rows, {6}},
      {"grid 2x2", {.t0 = 2, .t1 = 2}, grid, {4, 6}},
      {"grid 2x3", {.t0 = 2, .t1 = 3}, grid, {4, 6}},
      {"grid 2x3 and data 2", {.dp = 2, .t0 = 2, .t1 = 3}, grid, {4, 6, 2}},
      {"nested 2x3", {.t0 = 2, .t1 = 3}, nested, {12, 2}},
      {"nested, other order 2x3", {.t0 = 2, .t1 = 3}, reversed, {12, 2}},
      {"fused parts on 2", {.t0 = 2}, qkv, {16, 3}},
      {"fused parts on 2x3", {.t0 = 2, .t1 = 3}, qkv_grid, {12, 12}},
      {"middle dim on 2", {.t0 = 2}, middle, {3, 4, 5}},
  };
}

/// Row-major indices of a box in a tensor of this shape, in row-major order of the box.
std::vector<std::int64_t> indices(const Shape& offset, const Shape& extent, const Shape& shape) {
  std::vector<std::int64_t> result = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t prefix : result) {
      for (std::int64_t i = 0; i < extent[d]; ++i) {
        longer.push_back(prefix * shape[d] + offset[d] + i);
      }
    }
    result = std::move(longer);
  }
  return result;
}

/// local index -> global index of these boxes; fails on an element named twice.
std::map<std::int64_t, std::int64_t> element_map(std::span<const Region> boxes,
                                                 const Shape& local,
                                                 const Shape& global) {
  std::map<std::int64_t, std::int64_t> map;
  for (const Region& box : boxes) {
    const auto from = indices(box.local_offset, box.extent, local);
    const auto to = indices(box.global_offset, box.extent, global);
    for (std::size_t i = 0; i < from.size(); ++i) {
      REQUIRE(map.emplace(from[i], to[i]).second);
    }
  }
  return map;
}

}  // namespace

TEST_CASE("ranks are row-major and dr is outermost", "[mesh]") {
  const MeshShape shape{.dr = 2, .dp = 3, .t0 = 2};
  for (int rank = 0; rank < 12; ++rank) {
    const Mesh mesh(shape, rank);
    REQUIRE(mesh.world_size() == 12);
    REQUIRE(mesh.coord(Axis::dr) == rank / 6);
    REQUIRE(mesh.coord(Axis::dp) == rank / 2 % 3);
    REQUIRE(mesh.coord(Axis::t0) == rank % 2);
    REQUIRE(mesh.coord(Axis::pp) == 0);
    REQUIRE(mesh.size(data_axes()) == 6);
    REQUIRE(mesh.index(data_axes()) == rank / 2);
    const std::vector<int> peers = mesh.peers(data_axes());
    REQUIRE(peers.size() == 6);
    REQUIRE(peers[static_cast<std::size_t>(mesh.index(data_axes()))] == rank);
    REQUIRE(std::is_sorted(peers.begin(), peers.end()));
  }
  REQUIRE(Mesh(shape, 7).peers(axes({Axis::t0})) == std::vector<int>{6, 7});
  REQUIRE(Mesh(shape, 7).peers(AxisSet{}) == std::vector<int>{7});
  REQUIRE(name(Axis::dr) == "dr");
  REQUIRE(name(Axis::t2) == "t2");
}

TEST_CASE("groups of an axis set partition the world", "[mesh]") {
  const MeshShape shape{.dr = 2, .dp = 2, .sp = 2, .t1 = 3};
  for (const AxisSet& set : {axes({Axis::dp}), axes({Axis::dr, Axis::sp}), axes({Axis::t1})}) {
    std::multiset<int> seen;
    for (int rank = 0; rank < world_of(shape); ++rank) {
      const Mesh mesh(shape, rank);
      REQUIRE(static_cast<int>(mesh.peers(set).size()) == mesh.size(set));
      if (mesh.index(set) == 0) {
        for (const int peer : mesh.peers(set)) {
          seen.insert(peer);
        }
      }
    }
    REQUIRE(seen.size() == static_cast<std::size_t>(world_of(shape)));
    REQUIRE(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
  }
}

TEST_CASE("a mesh refuses impossible ranks and sizes", "[mesh]") {
  const auto id_of = [](const MeshShape& shape, int rank) -> std::string {
    try {
      const Mesh mesh(shape, rank);
    } catch (const Error& error) {
      return std::string(error.id());
    }
    return "";
  };
  REQUIRE(id_of({.dp = 2}, 2) == "mesh-rank");
  REQUIRE(id_of({.dp = 2}, -1) == "mesh-rank");
  REQUIRE(id_of({.dp = 0}, 0) == "mesh-rank");
  REQUIRE(id_of({.dp = 2}, 1).empty());
}

TEST_CASE("regions tile the tensor exactly", "[mesh]") {
  for (const Case& c : cases()) {
    INFO(c.what);
    std::map<std::int64_t, int> owners;  // global index -> how many ranks hold it
    for (int rank = 0; rank < world_of(c.mesh); ++rank) {
      const Mesh mesh(c.mesh, rank);
      const Shape local = local_shape(c.layout, c.global, mesh);
      const auto map = element_map(regions(c.layout, c.global, mesh), local, c.global);
      REQUIRE(static_cast<std::int64_t>(map.size()) == numel(local));
      REQUIRE(map.rbegin()->first == numel(local) - 1);
      for (const auto& [from, to] : map) {
        ++owners[to];
      }
    }
    const Mesh any(c.mesh, 0);
    const int copies = any.world_size() / any.size(c.layout.sharded());
    REQUIRE(static_cast<std::int64_t>(owners.size()) == numel(c.global));
    for (const auto& [index, count] : owners) {
      REQUIRE(count == copies);
    }
  }
}

TEST_CASE("regions come in order of local offsets", "[mesh]") {
  const Layout layout{{{{Axis::t0}, {8, 4, 4}}}, {}, {}};
  const std::vector<Region> boxes = regions(layout, {16, 3}, Mesh({.t0 = 2}, 1));
  const std::vector<Region> expected = {
      {{4, 0}, {0, 0}, {4, 3}}, {{10, 0}, {4, 0}, {2, 3}}, {{14, 0}, {6, 0}, {2, 3}}};
  REQUIRE((boxes == expected));
}

TEST_CASE("nested axes split major to minor", "[mesh]") {
  const Layout layout{{{{Axis::t1, Axis::t0}, {}}}, {}, {}};
  // rank 1 of 2x3 has t0 = 0, t1 = 1: part 1 * 2 + 0 of 6
  REQUIRE(regions(layout, {12}, Mesh({.t0 = 2, .t1 = 3}, 1)).front().global_offset == Shape{4});
}

TEST_CASE("flat ranges reassemble from any split in few boxes", "[mesh]") {
  for (const Case& c : cases()) {
    for (int rank = 0; rank < world_of(c.mesh); ++rank) {
      const Mesh mesh(c.mesh, rank);
      const Shape local = local_shape(c.layout, c.global, mesh);
      const std::vector<Region> parts = regions(c.layout, c.global, mesh);
      const auto expected = element_map(parts, local, c.global);
      const auto limit = std::max<std::size_t>(1, 2 * local.size() - (local.empty() ? 0 : 1));
      for (std::int64_t step = 1; step <= numel(local); ++step) {
        INFO(c.what << ", rank " << rank << ", pieces of " << step);
        std::vector<Region> all;
        for (std::int64_t begin = 0; begin < numel(local); begin += step) {
          const std::int64_t end = std::min(begin + step, numel(local));
          const std::vector<Region> boxes = flat_range(parts, local, begin, end);
          REQUIRE(boxes.size() <= limit * parts.size());
          for (const auto& [from, to] : element_map(boxes, local, c.global)) {
            REQUIRE((begin <= from && from < end));
          }
          all.insert(all.end(), boxes.begin(), boxes.end());
        }
        REQUIRE((element_map(all, local, c.global) == expected));
      }
    }
  }
}

TEST_CASE("the box bound of a flat range is reached", "[mesh]") {
  const std::vector<Region> part = {{{0, 0, 0}, {0, 0, 0}, {3, 3, 3}}};
  REQUIRE(flat_range(part, {3, 3, 3}, 1, 26).size() == 5);
  REQUIRE(flat_range(part, {3, 3, 3}, 0, 27).size() == 1);
  REQUIRE(flat_range(part, {3, 3, 3}, 4, 4).empty());
}

TEST_CASE("layout errors name what does not fit", "[mesh]") {
  const auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.id()) + ": " + error.what();
    }
    return "";
  };
  const Mesh mesh({.t0 = 2, .t1 = 2}, 0);
  const Layout nested{{{}, {{Axis::t0, Axis::t1}, {}}}, {}, {}};
  const std::string text = error_of([&] { (void)local_shape(nested, {3, 6}, mesh); });
  REQUIRE_THAT(text, Catch::Matchers::Contains("dim-divisible"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("dim 1"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("size 6"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("t0*t1"));
  const Layout blocks{{{{Axis::t0}, {2, 2}}}, {}, {}};
  REQUIRE_THAT(error_of([&] { (void)regions(blocks, {6}, mesh); }),
               Catch::Matchers::Contains("layout-blocks"));
  REQUIRE_THAT(error_of([&] { (void)flat_range({}, {4}, 2, 5); }),
               Catch::Matchers::Contains("flat-range"));
}

TEST_CASE("a gradient's layout swaps replicated and partial", "[mesh]") {
  const Layout layout{{{{Axis::t0}, {}}}, data_axes(), axes({Axis::sp})};
  const Layout grad = layout.grad();
  REQUIRE((grad.dims == layout.dims));
  REQUIRE(grad.partial == data_axes());
  REQUIRE(grad.replicated == axes({Axis::sp}));
  REQUIRE((grad.grad() == layout));
  REQUIRE(layout.sharded() == axes({Axis::t0}));
}

}  // namespace colossal
