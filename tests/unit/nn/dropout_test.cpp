// Does dropout keep what its keyed words say, wherever a tensor starts?
#include "nn/kernels/dropout.hpp"

#include "mesh/philox.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <cmath>

namespace colossal::test {
TEST_CASE("dropout keeps what its words say, at any offset", "[kernels]") {
  const kernels::DropoutKey key{stream_key(1, "site"), 7, 0, 0.3};
  const std::int64_t count = 1027;
  const at::Tensor x = normal_tensor({count}, "x", at::kFloat);
  const at::Tensor residual = normal_tensor({count}, "residual", at::kFloat);
  const at::Tensor whole = kernels::dropout(x, residual, key);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto block = static_cast<std::uint32_t>(i / 4);
    const std::uint32_t word =
        philox4x32(key.stream, {block, 0, key.step, 0})[static_cast<std::size_t>(i % 4)];
    const float kept = static_cast<double>(word) * 0x1p-32 >= 0.3 ? 1.0F : 0.0F;
    const float expected =
        x.data_ptr<float>()[i] * kept * static_cast<float>(1 / 0.7) + residual.data_ptr<float>()[i];
    REQUIRE(whole.data_ptr<float>()[i] == expected);
  }
  for (const std::int64_t first : {1, 2, 3, 64, 255, 1000}) {
    kernels::DropoutKey part = key;
    part.first = static_cast<std::uint64_t>(first);
    const std::int64_t rest = count - first;
    const at::Tensor tail = kernels::dropout(x.narrow(0, first, rest).contiguous(), {}, part)
                                .add(residual.narrow(0, first, rest));
    REQUIRE(at::equal(tail, whole.narrow(0, first, rest)));
  }
}

TEST_CASE("dropout keeps the right share, differs by step and site, and is equal in fp64",
          "[kernels]") {
  const at::Tensor x = at::ones({200, 501});
  const auto kept = [&](const std::string& site, std::uint32_t step) {
    return kernels::dropout(x, {}, {stream_key(1, site), step, 0, 0.1});
  };
  const at::Tensor first = kept("a", 0);
  const double n = static_cast<double>(x.numel());
  REQUIRE(std::abs(first.gt(0).sum().item<double>() / n - 0.9) < 5 * std::sqrt(0.09 / n));
  REQUIRE(std::abs(first.sum().item<double>() / n - 1) < 5 * std::sqrt(0.09 / n) / 0.9);
  REQUIRE(!at::equal(first, kept("a", 1)));
  REQUIRE(!at::equal(first, kept("b", 0)));
  REQUIRE(at::equal(first, kept("a", 0)));
  const at::Tensor wide = kernels::dropout(x.to(at::kDouble), {}, {stream_key(1, "a"), 0, 0, 0.1});
  REQUIRE(at::equal(wide.gt(0), first.gt(0)));
}

}  // namespace colossal::test
