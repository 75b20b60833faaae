// Does the product that also goes through gelu_tanh give both matrices, at every size that it
// takes, and leave the others to the library?
#include "nn/kernels/cuda/gelu_product.hpp"

#include "core/error.hpp"
#include "cuda/kernel_helpers.hpp"
#include "nn/functions.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>

namespace colossal::test {
namespace {

using kernels::cuda::gelu_product;

/// Rows, in, features: rows that fill no tile, an odd number of tiles, one step, many steps, steps
/// and columns cut short.
const std::vector<std::array<std::int64_t, 3>> kProductSizes = {
    {16904, 72, 2056}, {35000, 136, 648}, {4104, 1600, 6400}, {32768, 64, 512}, {9000, 8, 1544}};

struct ProductCase {
  at::Tensor x, weight, bias;
};

ProductCase make_product(const std::array<std::int64_t, 3>& sizes, at::ScalarType dtype) {
  const auto [rows, in, features] = sizes;
  const double scale = 1.0 / std::sqrt(static_cast<double>(in));
  return {normal_tensor({rows, in}, "x").to(dtype).to(kGpu),
          normal_tensor({features, in}, "weight").mul(scale).to(dtype).to(kGpu),
          normal_tensor({features}, "bias").to(dtype).to(kGpu)};
}

at::Tensor in_doubles(const at::Tensor& x) {
  return x.detach().to(at::kDouble);
}

/// Whether the kernel runs on the first GPU; says if it does not.
bool runs_here() {
  if (survey_gpus().gpus.front().capability == 90) {
    return true;
  }
  WARN("skipped: the kernel is for compute capability 9.0");
  return false;
}

}  // namespace

TEST_CASE("GPU: gelu's input and result come out of one product", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!runs_here()) {
    return;
  }
  for (const std::array<std::int64_t, 3>& sizes : kProductSizes) {
    INFO(sizes[0] << ' ' << sizes[1] << ' ' << sizes[2]);
    const auto [x, weight, bias] = make_product(sizes, at::kBFloat16);
    const auto found = gelu_product(x, weight, bias);
    REQUIRE(found.y_mf.defined());
    const at::Tensor exact = at::linear(in_doubles(x), in_doubles(weight), in_doubles(bias));
    REQUIRE(scaled_distance(exact, found.pre_mf) < step_of(at::kBFloat16));
    const at::Tensor gelu = at::gelu(exact, "tanh");
    REQUIRE(scaled_distance(gelu, found.y_mf) < step_of(at::kBFloat16));
    // Small values of the lower tail, too, are no further off than rounding and the sums' own
    // error.
    const at::Tensor apart = in_doubles(found.y_mf).sub(gelu).abs();
    REQUIRE(apart.sub(gelu.abs().mul(0.004)).max().item<double>() < 1e-4);
    const auto again = gelu_product(x, weight, bias);
    REQUIRE(at::equal(found.pre_mf, again.pre_mf));
    REQUIRE(at::equal(found.y_mf, again.y_mf));
  }
}

TEST_CASE("GPU: the product before gelu keeps what is no number and the tails", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!runs_here()) {
    return;
  }
  const auto [x, weight, bias] = make_product({16904, 72, 2056}, at::kBFloat16);
  bias.narrow(0, 0, 8).fill_(-60);
  bias.narrow(0, 8, 8).fill_(1e30);
  bias.narrow(0, 16, 8).fill_(-1e30);
  x[16903].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto found = gelu_product(x, weight, bias);
  const at::Tensor y = found.y_mf.narrow(0, 0, 16903);
  REQUIRE(y.narrow(1, 0, 8).abs().max().item<double>() == 0);
  REQUIRE(at::equal(y.narrow(1, 8, 8), found.pre_mf.narrow(0, 0, 16903).narrow(1, 8, 8)));
  REQUIRE(y.narrow(1, 16, 8).abs().max().item<double>() == 0);
  REQUIRE_FALSE(y.isnan().any().item<bool>());
  REQUIRE(found.y_mf[16903].isnan().all().item<bool>());
  REQUIRE(found.pre_mf[16903].isnan().all().item<bool>());
}

TEST_CASE("GPU: the product before gelu is left to the library elsewhere", "[cuda][linear]") {
  NEEDS_GPUS(1)
  const auto taken = [](const ProductCase& of) {
    return gelu_product(of.x, of.weight, of.bias).y_mf.defined();
  };
  const std::array<std::int64_t, 3> sizes = kProductSizes.front();
  REQUIRE(taken(make_product(sizes, at::kBFloat16)) == runs_here());
  REQUIRE_FALSE(taken(make_product({512, 768, 3072}, at::kBFloat16)));  // too little work
  REQUIRE_FALSE(taken(make_product(sizes, at::kHalf)));
  REQUIRE_FALSE(taken(make_product({16904, 68, 2056}, at::kBFloat16)));  // rows of broken packs
  REQUIRE_FALSE(taken(make_product({16904, 72, 2052}, at::kBFloat16)));
  ProductCase turned = make_product(sizes, at::kBFloat16);
  turned.weight = turned.weight.t().contiguous().t();
  REQUIRE_FALSE(taken(turned));
  ProductCase shifted = make_product(sizes, at::kBFloat16);
  shifted.bias = on_gpu(shifted.bias, true);
  REQUIRE_FALSE(taken(shifted));
}

TEST_CASE("GPU: a layer takes the product before gelu and gives its gradients", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!runs_here()) {
    return;
  }
  const ProductCase of = make_product({16896, 128, 1024}, at::kBFloat16);
  REQUIRE(gelu_product(of.x, of.weight, of.bias).y_mf.defined());
  std::vector<std::vector<at::Tensor>> found;
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    const auto leaf = [dtype](const at::Tensor& x) {
      return x.to(dtype, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
    };
    const at::Tensor x = leaf(of.x);
    const at::Tensor weight = leaf(of.weight);
    const at::Tensor bias = leaf(of.bias);
    const at::Tensor y = linear(x, weight, bias, ActivationKind::gelu_tanh);
    y.backward(normal_tensor(y.sizes().vec(), "gradient").to(dtype).to(kGpu));
    found.push_back({y.detach(), x.grad(), weight.grad(), bias.grad()});
  }
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    INFO("result " << i);
    REQUIRE(scaled_distance(found[0][i], found[1][i]) < 2 * step_of(at::kBFloat16));
  }
}

}  // namespace colossal::test
