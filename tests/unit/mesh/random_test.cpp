// Are random words the published ones, initial values normal, and both equal on every layout?
#include "mesh/random.hpp"

#include "core/error.hpp"
#include "mesh/philox.hpp"
#include "support/catch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace colossal {
namespace {

using Words = std::array<std::uint32_t, 4>;

const InitSpec kNormal{InitSpec::Kind::normal, 1.0};

at::Tensor whole(const InitSpec& init, std::uint64_t key, const Shape& shape) {
  at::Tensor values = at::empty(shape, at::kFloat);
  const std::vector<Region> parts = {{Shape(shape.size(), 0), Shape(shape.size(), 0), shape}};
  initialize(values, init, key, shape, parts);
  return values;
}

/// The normal quantile in fp64 by bisection of erfc: the reference of the polynomial.
double quantile(double p) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

}  // namespace

TEST_CASE("Philox gives the published vectors", "[mesh]") {  // Random123 kat_vectors
  REQUIRE(philox4x32(0, {0, 0, 0, 0}) == Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  REQUIRE(philox4x32(~0ULL, {~0U, ~0U, ~0U, ~0U}) ==
          Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
  REQUIRE(philox4x32(0x299F31D0A4093822ULL, {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}) ==
          Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE("stream keys differ by seed and name", "[mesh]") {
  REQUIRE(stream_key(1, "a") == stream_key(1, "a"));
  REQUIRE(stream_key(1, "a") != stream_key(2, "a"));
  REQUIRE(stream_key(1, "a") != stream_key(1, "b"));
}

TEST_CASE("initial values have the moments and tails of a normal", "[mesh]") {
  constexpr std::int64_t kCount = 1 << 21;
  const at::Tensor values = whole(kNormal, 42, {kCount});
  const float* z = values.data_ptr<float>();
  double sum[5] = {};
  std::int64_t beyond_3 = 0;
  std::int64_t beyond_4 = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= z[i];
    }
    beyond_3 += std::abs(z[i]) > 3;
    beyond_4 += std::abs(z[i]) > 4;
  }
  const double n = kCount;
  CHECK(std::abs(sum[1] / n) < 5 / std::sqrt(n));
  CHECK(std::abs(sum[2] / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(sum[3] / n) < 5 * std::sqrt(15 / n));
  CHECK(std::abs(sum[4] / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::abs(static_cast<double>(beyond_3) / n - 0.0026998) < 5 * std::sqrt(0.0027 / n));
  CHECK(std::abs(static_cast<double>(beyond_4) / n - 6.334e-5) < 5 * std::sqrt(6.4e-5 / n));
}

TEST_CASE("initial values are quantiles of Philox words to fp32 accuracy", "[mesh]") {
  const std::uint64_t key = stream_key(3, "w");
  const at::Tensor values = whole(kNormal, key, {4096});
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const std::uint32_t word = philox4x32(key, {i / 4, 0, 0, 0})[i % 4];
    // the word, read as signed, orders the values: -2^31 is the far left
    const double p =
        (static_cast<double>(static_cast<std::int32_t>(word)) + 0x1p31 + 0.5) * 0x1p-32;
    const double expected = quantile(p);
    REQUIRE(values.data_ptr<float>()[i] == Approx(expected).epsilon(1e-6).margin(1e-7));
  }
}

TEST_CASE("the extreme words give finite, accurate values", "[mesh]") {
  for (const std::uint32_t word : {0x7FFFFFFFU, 0x80000000U, 0U, 0xFFFFFFFFU, 0x7FFFFF00U}) {
    const double p =
        (static_cast<double>(static_cast<std::int32_t>(word)) + 0x1p31 + 0.5) * 0x1p-32;
    INFO("word " << word);
    REQUIRE(normal_from_word(word) == Approx(quantile(p)).epsilon(1e-6).margin(1e-9));
  }
  REQUIRE(std::abs(normal_from_word(0x80000000U)) == Approx(6.338).epsilon(1e-3));
}

TEST_CASE("initial values are the same on every layout, padding is zero", "[mesh]") {
  struct Case {
    MeshShape mesh;
    Layout layout;
    Shape shape;
  };
  const Layout grid{{{{Axis::t0}, {}}, {{Axis::t1}, {}}}, {}, {}};
  const Layout qkv{{{{Axis::t0}, {8, 4, 4}}}, {}, {}};
  const std::vector<Case> cases = {{{}, {}, {6, 10}},
                                   {{.t0 = 2, .t1 = 2}, grid, {6, 10}},
                                   {{.t0 = 2, .t1 = 3}, grid, {4, 33}},
                                   {{.t0 = 2}, qkv, {16, 7}},
                                   {{.t0 = 2}, qkv, {16, 300, 3}},
                                   {{.t0 = 2}, qkv, {16}}};
  for (const Case& c : cases) {
    const at::Tensor expected = whole(kNormal, 9, c.shape);
    for (int rank = 0; rank < Mesh(c.mesh, 0).world_size(); ++rank) {
      const Mesh mesh(c.mesh, rank);
      at::Tensor local = at::empty(local_shape(c.layout, c.shape, mesh), at::kFloat);
      const std::vector<Region> parts = regions(c.layout, c.shape, mesh);
      initialize(local, kNormal, 9, c.shape, parts);
      for (const Region& part : parts) {
        at::Tensor mine = local;
        at::Tensor theirs = expected;
        for (std::size_t d = 0; d < c.shape.size(); ++d) {
          const auto dim = static_cast<std::int64_t>(d);
          mine = mine.narrow(dim, part.local_offset[d], part.extent[d]);
          theirs = theirs.narrow(dim, part.global_offset[d], part.extent[d]);
        }
        REQUIRE(at::equal(mine, theirs));
      }
    }
  }
  at::Tensor padded = at::full({8, 5}, 3.0, at::kFloat);  // logical 6 x 5
  initialize(padded, kNormal, 9, {6, 5}, std::vector<Region>{{{0, 0}, {0, 0}, {6, 5}}});
  REQUIRE(at::equal(padded.narrow(0, 0, 6), whole(kNormal, 9, {6, 5})));
  REQUIRE(at::equal(padded.narrow(0, 6, 2), at::zeros({2, 5})));
}

TEST_CASE("every kind of initial value fills every dtype with the same numbers", "[mesh]") {
  const Shape shape = {3, 5};
  const std::vector<Region> parts = {{{0, 0}, {0, 0}, shape}};
  at::Tensor wide = at::empty(shape, at::kDouble);
  initialize(wide, kNormal, 4, shape, parts);
  REQUIRE(at::equal(wide, whole(kNormal, 4, shape).to(at::kDouble)));
  initialize(wide, {InitSpec::Kind::ones, 0}, 4, shape, parts);
  REQUIRE(at::equal(wide, at::full(shape, 1.0, at::kDouble)));
  initialize(wide, {InitSpec::Kind::zeros, 0}, 4, shape, parts);
  REQUIRE(at::equal(wide, at::zeros(shape, at::kDouble)));
  const at::Tensor scaled = whole({InitSpec::Kind::normal, 0.5}, 4, shape);
  REQUIRE(at::equal(scaled, whole(kNormal, 4, shape).mul(0.5)));
  at::Tensor transposed = at::empty({5, 3}, at::kFloat).t();
  try {
    initialize(transposed, kNormal, 4, shape, parts);
    FAIL("a strided tensor was accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "init-contiguous");
  }
}

}  // namespace colossal
