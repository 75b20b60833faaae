// Do LayerNorm and the token loss equal ATen's, for odd sizes, in fp32 and fp64?
#include "core/batch.hpp"
#include "core/error.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace colossal::test {
namespace {}  // namespace

TEST_CASE("LayerNorm equals ATen, with and without a residual gradient", "[kernels]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Shape& size : {Shape{1, 7}, Shape{3, 5}, Shape{7, 33}, Shape{300, 96}}) {
      const at::Tensor x = normal_tensor(size, "x", dtype).mul(3).add(2);
      const at::Tensor weight = normal_tensor({size[1]}, "weight", dtype);
      const at::Tensor bias = normal_tensor({size[1]}, "bias", dtype);
      const at::Tensor grad = normal_tensor(size, "grad", dtype);
      const at::Tensor residual = normal_tensor(size, "residual", dtype);
      const double tolerance = 5 * tolerance_of(dtype);
      const auto result = kernels::layer_norm_forward(x, weight, bias, 1e-5);
      const auto [y, mean, rstd] = at::native_layer_norm(x, {size[1]}, weight, bias, 1e-5);
      require_close(y, result.y_mh, tolerance, "y");
      require_close(rstd.flatten(), result.rstd_m, tolerance, "rstd");
      const auto [x_grad, weight_grad, bias_grad] = at::native_layer_norm_backward(
          grad, x, {size[1]}, mean, rstd, weight, bias, {true, true, true});
      const auto plain =
          kernels::layer_norm_backward(grad, {x, weight, result.mean_m, result.rstd_m}, {});
      require_close(x_grad, plain.x_mh, 10 * tolerance, "gradient of x");
      require_close(weight_grad, plain.weight_h, 10 * tolerance, "gradient of weight");
      require_close(bias_grad, plain.bias_h, 10 * tolerance, "gradient of bias");
      const auto with =
          kernels::layer_norm_backward(grad, {x, weight, result.mean_m, result.rstd_m}, residual);
      require_close(plain.x_mh.add(residual), with.x_mh, tolerance, "gradient with residual");
    }
  }
}

TEST_CASE("token loss equals ATen; ignored rows and padding get no gradient", "[kernels]") {
  const double smoothing = GENERATE(0.0, 0.1, 0.9);
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t vocabulary : {1, 5, 33, 250}) {
      const std::int64_t padded = vocabulary + vocabulary % 3;
      at::Tensor logits = normal_tensor({37, padded}, "logits", dtype).mul(4);
      at::Tensor labels = at::arange(37).remainder(vocabulary);
      labels.select(0, 3).fill_(kIgnoreLabel);
      labels.select(0, 36).fill_(kIgnoreLabel);
      const at::Tensor leaf =
          logits.narrow(1, 0, vocabulary).clone().detach().set_requires_grad(true);
      const at::Tensor expected =
          at::cross_entropy_loss(leaf, labels, {}, 2, kIgnoreLabel, smoothing);  // 2: sum
      expected.backward();
      const at::Tensor kept = logits.clone();
      const double seen = kernels::token_loss(logits, labels, vocabulary, std::nullopt, smoothing);
      REQUIRE(at::equal(kept, logits));  // without a gradient the logits stay
      at::Tensor composed = logits.clone();
      const at::Tensor also =
          kernels::composed_token_loss(composed, labels, vocabulary, 1.0, smoothing);
      const double loss = kernels::token_loss(logits, labels, vocabulary, 1.0, smoothing);
      // of one token the gradient is what rounding leaves of 0
      const double tolerance = vocabulary == 1 ? 0.5 : tolerance_of(dtype);
      REQUIRE(seen == Approx(expected.item<double>()).epsilon(tolerance).margin(1e-6));
      REQUIRE(loss == Approx(seen).epsilon(tolerance).margin(1e-12));
      require_close(leaf.grad(), logits.narrow(1, 0, vocabulary), tolerance, "gradient");
      REQUIRE(logits.narrow(1, vocabulary, padded - vocabulary).abs().sum().item<double>() == 0);
      REQUIRE(logits.select(0, 3).abs().sum().item<double>() == 0);
      REQUIRE(also.item<double>() == Approx(loss).epsilon(tolerance).margin(1e-5));
      require_close(logits, composed, tolerance, "gradient of the composed loss");
    }
  }
}

TEST_CASE("token loss is right where exp overflows", "[kernels]") {
  at::Tensor logits = at::zeros({1, 3}, at::kFloat);
  logits.select(1, 0).fill_(1e4);
  const double loss = kernels::token_loss(logits, at::zeros({1}, at::kLong), 3, 1.0);
  REQUIRE(loss == 0);
  REQUIRE(std::isfinite(logits.abs().sum().item<double>()));
}

TEST_CASE("a label outside the vocabulary is a data error", "[kernels]") {
  for (const std::int64_t label : {-1, 3}) {
    at::Tensor logits = at::zeros({1, 4});
    try {
      (void)kernels::token_loss(logits, at::zeros({1}, at::kLong).fill_(label), 3, std::nullopt);
      FAIL("the label was accepted");
    } catch (const Error& error) {
      REQUIRE(error.id() == "label-range");
      REQUIRE(error.kind() == ErrorKind::data);
    }
  }
}

}  // namespace colossal::test
