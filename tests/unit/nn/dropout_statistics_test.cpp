// Are masks of dropout as good as independent coins, and the same however a tensor is cut?
#include "nn/kernels/dropout.hpp"
#include "support/catch.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::int64_t kRows = 400;
constexpr std::int64_t kColumns = 501;

/// 1 where an element is kept.
at::Tensor mask(const std::string& site,
                std::uint32_t step,
                double p,
                std::uint64_t first = 0,
                const Shape& shape = {kRows, kColumns}) {
  const at::Tensor ones = at::ones(shape, at::kDouble);
  return kernels::dropout(ones, {}, {stream_key(3, site), step, first, p}).gt(0).to(at::kDouble);
}

/// How far the mean of n coins that fall 1 with probability q is from q, in standard deviations.
double deviations(const at::Tensor& coins, double q) {
  const auto n = static_cast<double>(coins.numel());
  return std::abs(coins.mean().item<double>() - q) / std::sqrt(q * (1 - q) / n);
}

}  // namespace

TEST_CASE("the share that is kept is right for every probability", "[kernels][dropout]") {
  for (const double p : {0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 0.999}) {
    INFO(p);
    const at::Tensor kept = mask("share", 1, p);
    CHECK(deviations(kept, 1 - p) < 4.5);
    // Rows and columns are not better off than others: their counts spread as they should.
    for (const std::int64_t dim : {0, 1}) {
      const auto n = static_cast<double>(kept.size(dim));
      const double spread = kept.sum(dim).var().item<double>();
      const double expected = n * p * (1 - p);
      const auto groups = static_cast<double>(kept.size(1 - dim));
      // of rare events the variance itself spreads more: kurtosis 1/(p q) of each count
      const double error = std::sqrt((2 + 1 / expected) / groups);
      CHECK(std::abs(spread / expected - 1) < 5 * error);
    }
  }
}

TEST_CASE("neighbours, rows, steps and sites fall independently", "[kernels][dropout]") {
  const double p = 0.3;
  const at::Tensor here = mask("site", 5, p);
  const auto agree = [&](const at::Tensor& a, const at::Tensor& b) {
    const double q = (1 - p) * (1 - p);
    return deviations(a.mul(b), q);
  };
  for (const std::int64_t distance : {1, 2, 3, 4, 5, 8, 16, 64}) {
    INFO("distance " << distance);
    const std::int64_t left = kColumns - distance;
    CHECK(agree(here.narrow(1, 0, left), here.narrow(1, distance, left)) < 4.5);
  }
  CHECK(agree(here.narrow(0, 0, kRows - 1), here.narrow(0, 1, kRows - 1)) < 4.5);
  CHECK(agree(here, mask("site", 6, p)) < 4.5);
  CHECK(agree(here, mask("site", 5 + (1U << 31U), p)) < 4.5);
  CHECK(agree(here, mask("sitf", 5, p)) < 4.5);
  CHECK(agree(here, mask("site", 5, p, 1ULL << 32U)) < 4.5);  // a place beyond 32 bits
  CHECK(agree(here, mask("site", 5, p, 1ULL << 34U)) < 4.5);  // whose block is, too
}

TEST_CASE("what a larger probability keeps, a smaller one keeps too", "[kernels][dropout]") {
  at::Tensor last = mask("nested", 2, 0.0);
  CHECK(last.sum().item<double>() == static_cast<double>(last.numel()));
  for (const double p : {0.1, 0.2, 0.5, 0.8, 0.99}) {
    const at::Tensor kept = mask("nested", 2, p);
    CHECK(kept.gt(last).sum().item<std::int64_t>() == 0);
    CHECK(kept.sum().item<double>() < last.sum().item<double>());
    last = kept;
  }
}

TEST_CASE("a tensor cut at any places has the masks of the whole", "[kernels][dropout]") {
  const std::int64_t count = 2003;
  unsigned state = 9;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = normal_tensor({count}, "x", dtype);
    const at::Tensor residual = normal_tensor({count}, "residual", dtype);
    for (const std::uint64_t first : std::vector<std::uint64_t>{0, 7, (1ULL << 34U) - 3}) {
      const kernels::DropoutKey key{stream_key(1, "cut"), 4, first, 0.4};
      const at::Tensor whole = kernels::dropout(x, residual, key);
      at::Tensor joined = at::zeros_like(whole);
      for (std::int64_t begin = 0; begin < count;) {
        state = state * 1664525U + 1013904223U;
        const std::int64_t length = std::min<std::int64_t>(
            1 + static_cast<std::int64_t>((state >> 16U) % 97), count - begin);
        kernels::DropoutKey part = key;
        part.first += static_cast<std::uint64_t>(begin);
        joined.narrow(0, begin, length)
            .copy_(kernels::dropout(x.narrow(0, begin, length).contiguous(),
                                    residual.narrow(0, begin, length).contiguous(),
                                    part));
        begin += length;
      }
      INFO(c10::toString(dtype) << " from " << first);
      CHECK(at::equal(joined, whole));
    }
  }
}

TEST_CASE("every dtype keeps the same elements", "[kernels][dropout]") {
  const at::Tensor kept = mask("types", 9, 0.35);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor ones = at::ones({kRows, kColumns}, dtype);
    const at::Tensor some = kernels::dropout(ones, {}, {stream_key(3, "types"), 9, 0, 0.35});
    CHECK(at::equal(some.gt(0).to(at::kDouble), kept));
    // What is kept has one value: 1 / 0.65 in this type.
    const at::Tensor scaled = some.masked_select(some.gt(0));
    CHECK(scaled.min().item<double>() == scaled.max().item<double>());
    CHECK(scaled.max().item<double>() == Approx(1 / 0.65).epsilon(5e-3));
  }
}

TEST_CASE("dropout of nothing adds the residual and changes no bit", "[kernels][dropout]") {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = normal_tensor({3, 33}, "x", dtype);
    const at::Tensor residual = normal_tensor({3, 33}, "residual", dtype);
    CHECK(at::equal(kernels::dropout(x, {}, {1, 2, 3, 0.0}), x));
    CHECK(at::equal(kernels::dropout(x, residual, {1, 2, 3, 0.0}), x.add(residual)));
  }
}

TEST_CASE("a dropped element takes part in nothing, even as NaN", "[kernels][dropout]") {
  const kernels::DropoutKey key{stream_key(3, "nan"), 1, 0, 0.5};
  const at::Tensor ones = at::ones({1000}, at::kFloat);
  const at::Tensor dropped = kernels::dropout(ones, {}, key).eq(0);
  at::Tensor x = ones.clone();
  x.masked_fill_(dropped, std::nan(""));
  const at::Tensor result = kernels::dropout(x, ones, key);
  CHECK(result.masked_select(dropped).eq(1).all().item<bool>());
  CHECK(result.isfinite().all().item<bool>());
}

}  // namespace colossal::test
