// Do linear layers that fuse their activation into products compute what the separate operations
// do?
#include "nn/kernels/cuda/linear.hpp"

#include "core/error.hpp"
#include "cuda/kernel_helpers.hpp"
#include "nn/functions.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/cuda/gelu_gradient.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>

namespace colossal::test {
namespace {

using kernels::cuda::fuses_gelu;

/// Rows, in, features.
const std::vector<std::array<std::int64_t, 3>> kSizes = {
    {8, 8, 8}, {24, 40, 16}, {512, 768, 3072}, {1000, 72, 136}, {2048, 1600, 6400}};

at::Tensor small(const Shape& shape, const std::string& name, at::ScalarType dtype) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.back()));
  return normal_tensor(shape, name).mul(scale).to(dtype).to(kGpu);
}

at::Tensor wide(const at::Tensor& x) {
  return x.detach().to(at::kDouble);
}

struct Mlp {
  at::Tensor x, up, up_bias, down, down_bias;
};

Mlp make_mlp(std::int64_t rows, std::int64_t hidden, at::ScalarType dtype) {
  const auto leaf = [&](const Shape& shape, const std::string& name) {
    return small(shape, name, dtype).set_requires_grad(true);
  };
  return {leaf({1, rows, hidden}, "x"),
          leaf({4 * hidden, hidden}, "up"),
          leaf({4 * hidden}, "up_bias"),
          leaf({hidden, 4 * hidden}, "down"),
          leaf({hidden}, "down_bias")};
}

std::vector<at::Tensor> gradients_of(const Mlp& mlp, Rebuild rebuild) {
  const at::Tensor hidden = linear(mlp.x, mlp.up, mlp.up_bias, ActivationKind::gelu_tanh, rebuild);
  const at::Tensor y = linear(hidden, mlp.down, mlp.down_bias);
  y.backward(small(y.sizes().vec(), "gradient", y.scalar_type()));
  return {
      y, mlp.x.grad(), mlp.up.grad(), mlp.up_bias.grad(), mlp.down.grad(), mlp.down_bias.grad()};
}

}  // namespace

TEST_CASE("GPU: gelu inside the product is gelu after it", "[cuda][linear]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, in, features] : kSizes) {
      INFO(c10::toString(dtype) << ' ' << rows << ' ' << in << ' ' << features);
      const at::Tensor x = small({rows, in}, "x", dtype).mul(8);
      const at::Tensor weight = small({features, in}, "weight", dtype);
      const at::Tensor bias = small({features}, "bias", dtype);
      REQUIRE(fuses_gelu(x, weight, ActivationKind::gelu_tanh));
      const auto [y, pre] = kernels::cuda::linear_gelu(x, weight, bias);
      const at::Tensor exact = at::linear(wide(x), wide(weight), wide(bias));
      REQUIRE(scaled_distance(exact, pre) < step_of(dtype));
      REQUIRE(scaled_distance(at::gelu(exact, "tanh"), y) < step_of(dtype));
      const at::Tensor g = small({rows, in}, "g", dtype);
      const auto grad = kernels::cuda::linear_gelu_backward(g, weight.t().contiguous(), pre);
      const at::Tensor exact_grad =
          at::gelu_backward(wide(g).matmul(wide(weight).t()), wide(pre), "tanh");
      REQUIRE(scaled_distance(exact_grad, grad.pre_mf) < step_of(dtype));
      const at::Tensor sums =
          grad.bias_f.defined() ? grad.bias_f : kernels::column_sums(grad.pre_mf);
      REQUIRE(scaled_distance(exact_grad.sum(0), sums) < 2 * step_of(dtype));
    }
  }
}

namespace {

/// Rows, in, features: rows that fill no tile, an odd number of tiles, steps and columns cut short.
const std::vector<std::array<std::int64_t, 3>> kLargeSizes = {
    {16904, 72, 2056}, {35000, 136, 648}, {4104, 1600, 6400}, {32768, 64, 512}};

struct GeluCase {
  at::Tensor g, weight, pre;
};

GeluCase make_case(const std::array<std::int64_t, 3>& sizes, at::ScalarType dtype) {
  const auto [rows, in, features] = sizes;
  return {small({rows, in}, "g", dtype),
          small({in, features}, "weight", dtype),
          small({rows, features}, "pre", dtype).mul(std::sqrt(static_cast<double>(features)) * 2)};
}

/// Whether the kernel runs on the first GPU.
bool is_hopper() {
  return survey_gpus().gpus.front().capability == 90;
}

}  // namespace

TEST_CASE("GPU: gelu's gradient and its sums come out of one product", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!is_hopper()) {
    WARN("skipped: the kernel is for compute capability 9.0");
    return;
  }
  for (const std::array<std::int64_t, 3>& sizes : kLargeSizes) {
    INFO(sizes[0] << ' ' << sizes[1] << ' ' << sizes[2]);
    const auto [g, weight, pre] = make_case(sizes, at::kBFloat16);
    const auto grad = kernels::cuda::gelu_gradient(g, weight, pre);
    REQUIRE(grad.pre_mf.defined());
    const at::Tensor exact = at::gelu_backward(wide(g).matmul(wide(weight)), wide(pre), "tanh");
    REQUIRE(scaled_distance(exact, grad.pre_mf) < step_of(at::kBFloat16));
    REQUIRE(scaled_distance(exact.sum(0), grad.bias_f) < 1e-5);
    const auto again = kernels::cuda::gelu_gradient(g, weight, pre);
    REQUIRE(at::equal(grad.pre_mf, again.pre_mf));
    REQUIRE(at::equal(grad.bias_f, again.bias_f));
  }
}

TEST_CASE("GPU: gelu's gradient keeps what is no number and the tails", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!is_hopper()) {
    WARN("skipped: the kernel is for compute capability 9.0");
    return;
  }
  const auto [g, weight, pre] = make_case({16904, 72, 2056}, at::kBFloat16);
  pre.narrow(1, 0, 8).fill_(-60);
  pre.narrow(1, 8, 8).fill_(60);
  g[16903].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto grad = kernels::cuda::gelu_gradient(g, weight, pre);
  const at::Tensor rest = grad.pre_mf.narrow(0, 0, 16903);
  REQUIRE(rest.narrow(1, 0, 8).abs().max().item<double>() == 0);
  const at::Tensor product = wide(g).matmul(wide(weight)).narrow(0, 0, 16903);
  REQUIRE(scaled_distance(product.narrow(1, 8, 8), rest.narrow(1, 8, 8)) < step_of(at::kBFloat16));
  REQUIRE(grad.pre_mf[16903].isnan().all().item<bool>());
  REQUIRE(grad.bias_f.isnan().all().item<bool>());
  REQUIRE_FALSE(rest.isnan().any().item<bool>());
}

TEST_CASE("GPU: gelu's gradient is left to the library elsewhere", "[cuda][linear]") {
  NEEDS_GPUS(1)
  const auto taken = [](const GeluCase& of) {
    return kernels::cuda::gelu_gradient(of.g, of.weight, of.pre).pre_mf.defined();
  };
  const std::array<std::int64_t, 3> sizes = kLargeSizes.front();
  REQUIRE_FALSE(taken(make_case({512, 768, 3072}, at::kBFloat16)));  // too little work
  REQUIRE_FALSE(taken(make_case(sizes, at::kHalf)));
  GeluCase turned = make_case(sizes, at::kBFloat16);
  turned.weight = turned.weight.t().contiguous().t();
  REQUIRE_FALSE(taken(turned));
  GeluCase shifted = make_case(sizes, at::kBFloat16);
  shifted.g = on_gpu(shifted.g, true);
  REQUIRE_FALSE(taken(shifted));
  REQUIRE_FALSE(taken(make_case({16904, 72, 2052}, at::kBFloat16)));  // rows of broken packs
  for (const GeluCase& of : {turned, shifted}) {
    const auto grad = kernels::cuda::linear_gelu_backward(of.g, of.weight, of.pre);
    const at::Tensor exact =
        at::gelu_backward(wide(of.g).matmul(wide(of.weight)), wide(of.pre), "tanh");
    REQUIRE(scaled_distance(exact, grad.pre_mf) < step_of(at::kBFloat16));
  }
}

TEST_CASE("GPU: products of 16 bits, with a bias and into gradients", "[cuda][linear]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, in, features] : kSizes) {
      INFO(c10::toString(dtype) << ' ' << rows << ' ' << in << ' ' << features);
      const at::Tensor x = small({rows, in}, "x", dtype);
      const at::Tensor weight = small({features, in}, "weight", dtype);
      const at::Tensor bias = small({features}, "bias", dtype);
      const at::Tensor exact = wide(x).matmul(wide(weight).t());
      const double step = step_of(dtype);
      REQUIRE(scaled_distance(exact, kernels::cuda::product(x, weight.t())) < step);
      REQUIRE(scaled_distance(exact.add(wide(bias)), kernels::cuda::product(bias, x, weight.t())) <
              step);
      const at::Tensor g = small({rows, features}, "g", dtype);
      const at::Tensor more = wide(g).t().matmul(wide(x));
      for (const at::ScalarType kept : {dtype, at::kFloat}) {
        const at::Tensor grad = small({features, in}, "before", kept);
        const at::Tensor sum = wide(grad).add(more);
        const auto version = grad._version();
        REQUIRE(kernels::cuda::add_weight_gradient(grad, g, x));
        REQUIRE(scaled_distance(sum, grad) < (kept == dtype ? step : 1e-5));
        REQUIRE(grad._version() > version);
      }
    }
  }
  const at::Tensor odd = small({15, 24}, "odd", at::kBFloat16);
  REQUIRE_FALSE(kernels::cuda::add_weight_gradient(small({24, 24}, "w", at::kBFloat16), odd, odd));
  REQUIRE(scaled_distance(wide(odd).matmul(wide(odd).t()), kernels::cuda::product(odd, odd.t())) <
          step_of(at::kBFloat16));
}

TEST_CASE("GPU: gradients are added to those that a weight has", "[cuda][linear]") {
  NEEDS_GPUS(1)
  const auto gradient = [](bool has_some) {
    const at::Tensor x = small({64, 32}, "x", at::kBFloat16);
    at::Tensor weight = small({16, 32}, "weight", at::kBFloat16).set_requires_grad(true);
    if (has_some) {
      weight.mutable_grad() = small({16, 32}, "before", at::kBFloat16);
    }
    linear(x, weight, at::Tensor()).sum().backward();
    return wide(weight.grad());
  };
  const at::Tensor before = wide(small({16, 32}, "before", at::kBFloat16));
  REQUIRE(scaled_distance(gradient(false).add(before), gradient(true)) <
          2 * step_of(at::kBFloat16));
}

TEST_CASE("GPU: a residual is added inside the product", "[cuda][linear]") {
  NEEDS_GPUS(1)
  for (const std::int64_t rows : {15, 64}) {  // apart, fused
    for (const bool with_bias : {true, false}) {
      const auto run = [&](at::ScalarType dtype) {
        const auto leaf = [&](const Shape& shape, const std::string& name) {
          return small(shape, name, dtype).set_requires_grad(true);
        };
        const at::Tensor residual = leaf({1, rows, 16}, "residual");
        const at::Tensor x = leaf({1, rows, 32}, "x");
        const at::Tensor weight = leaf({16, 32}, "weight");
        const at::Tensor bias = with_bias ? leaf({16}, "bias") : at::Tensor();
        const at::Tensor y = linear_onto(residual, x, weight, bias);
        y.backward(small(y.sizes().vec(), "gradient", dtype));
        std::vector<at::Tensor> all = {y, residual.grad(), x.grad(), weight.grad()};
        if (with_bias) {
          all.push_back(bias.grad());
        }
        return all;
      };
      const auto exact = run(at::kDouble);
      const auto found = run(at::kBFloat16);
      for (std::size_t i = 0; i < found.size(); ++i) {
        INFO("rows " << rows << ", result " << i);
        REQUIRE(scaled_distance(exact[i], found[i]) < 2 * step_of(at::kBFloat16));
      }
    }
  }
}

TEST_CASE("GPU: what cannot be fused is not", "[cuda][linear]") {
  NEEDS_GPUS(1)
  const at::Tensor x = small({16, 24}, "x", at::kBFloat16);
  const at::Tensor weight = small({32, 24}, "weight", at::kBFloat16);
  REQUIRE(fuses_gelu(x, weight, ActivationKind::gelu_tanh));
  REQUIRE_FALSE(fuses_gelu(x, weight, ActivationKind::gelu));
  REQUIRE_FALSE(fuses_gelu(x.to(at::kFloat), weight.to(at::kFloat), ActivationKind::gelu_tanh));
  REQUIRE_FALSE(fuses_gelu(x.narrow(0, 0, 15), weight, ActivationKind::gelu_tanh));
  REQUIRE_FALSE(fuses_gelu(on_gpu(x.cpu(), true), weight, ActivationKind::gelu_tanh));
  REQUIRE_FALSE(fuses_gelu(x.cpu(), weight.cpu(), ActivationKind::gelu_tanh));
}

TEST_CASE("GPU: a feed-forward layer gives the gradients of the CPU, whatever is computed again",
          "[cuda][linear]") {
  NEEDS_GPUS(1)
  for (const std::int64_t rows : {15, 64}) {  // apart, fused
    for (const Rebuild rebuild : {Rebuild::nothing, Rebuild::output, Rebuild::product}) {
      const Mlp exact = make_mlp(rows, 64, at::kDouble);
      const Mlp half = make_mlp(rows, 64, at::kBFloat16);
      const auto expected = gradients_of(exact, Rebuild::nothing);
      const auto found = gradients_of(half, rebuild);
      for (std::size_t i = 0; i < found.size(); ++i) {
        INFO("rows " << rows << ", rebuild " << static_cast<int>(rebuild) << ", result " << i);
        REQUIRE(scaled_distance(expected[i].detach(), found[i]) < 4 * step_of(at::kBFloat16));
      }
    }
  }
}

namespace {

std::int64_t bytes_in_use() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
}

}  // namespace

TEST_CASE("GPU: the product that goes back through gelu makes gelu's result again",
          "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!is_hopper()) {
    WARN("skipped: the kernel is for compute capability 9.0");
    return;
  }
  for (const std::array<std::int64_t, 3>& sizes : kLargeSizes) {
    INFO(sizes[0] << ' ' << sizes[1] << ' ' << sizes[2]);
    const auto [g, weight, pre] = make_case(sizes, at::kBFloat16);
    const at::Tensor before = pre.clone();
    const auto plain = kernels::cuda::gelu_gradient(g, weight, before);
    REQUIRE(at::equal(before, pre));
    const auto grad = kernels::cuda::gelu_gradient(g, weight, pre, true);
    REQUIRE(grad.pre_mf.defined());
    REQUIRE(at::equal(plain.pre_mf, grad.pre_mf));
    REQUIRE(at::equal(plain.bias_f, grad.bias_f));
    const at::Tensor exact = at::gelu(wide(before), "tanh");
    REQUIRE(scaled_distance(exact, pre) < step_of(at::kBFloat16));
    REQUIRE(wide(pre).sub(exact).abs().max().item<double>() <
            step_of(at::kBFloat16) * exact.abs().max().item<double>());
  }
}

TEST_CASE("GPU: gelu's result that is not kept gives the gradients of the CPU", "[cuda][linear]") {
  NEEDS_GPUS(1)
  if (!is_hopper()) {
    WARN("skipped: the kernel is for compute capability 9.0");
    return;
  }
  constexpr std::int64_t kTokens = 8448;
  const Mlp exact = make_mlp(kTokens, 256, at::kDouble);
  const auto expected = gradients_of(exact, Rebuild::nothing);
  std::vector<std::int64_t> kept;  // bytes from forward to backward
  for (const Rebuild rebuild : {Rebuild::nothing, Rebuild::output}) {
    const Mlp half = make_mlp(kTokens, 256, at::kBFloat16);
    REQUIRE(kernels::cuda::rebuilds_gelu(half.x[0], half.up));
    static_cast<void>(gradients_of(half, rebuild));  // chooses kernels, which takes workspaces
    for (const at::Tensor& leaf : {half.x, half.up, half.up_bias, half.down, half.down_bias}) {
      leaf.mutable_grad() = at::Tensor();
    }
    const std::int64_t before = bytes_in_use();
    at::Tensor y = linear(linear(half.x, half.up, half.up_bias, ActivationKind::gelu_tanh, rebuild),
                          half.down,
                          half.down_bias);
    kept.push_back(bytes_in_use() - before);
    y = at::Tensor();
    const auto found = gradients_of(half, rebuild);
    for (std::size_t i = 0; i < found.size(); ++i) {
      INFO("rebuild " << static_cast<int>(rebuild) << ", result " << i);
      REQUIRE(scaled_distance(expected[i].detach(), found[i]) < 4 * step_of(at::kBFloat16));
    }
  }
  REQUIRE(kept[0] - kept[1] == kTokens * 1024 * 2);
}

TEST_CASE("GPU: a second reader of a fused activation is an error", "[cuda][linear]") {
  NEEDS_GPUS(1)
  const Mlp mlp = make_mlp(64, 64, at::kBFloat16);
  const at::Tensor hidden = linear(mlp.x, mlp.up, mlp.up_bias, ActivationKind::gelu_tanh);
  const at::Tensor y = linear(hidden, mlp.down, mlp.down_bias);
  try {
    y.sum().add(hidden.sum()).backward();
    FAIL("two readers were accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "activation-users");
  }
}

}  // namespace colossal::test
