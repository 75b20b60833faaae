// Do kernels on 16 bits give what fp64 gives for the same inputs, rounded once? For every kernel
// and odd sizes.
#include "core/batch.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace colossal::test {
namespace {

const std::vector<at::ScalarType> kHalves = {at::kBFloat16, at::kHalf};
const std::vector<Shape> kHalfSizes = {{1, 1}, {3, 5}, {7, 33}, {1, 129}, {300, 96}};

/// Standard normal values that `dtype` holds exactly.
at::Tensor normal_half(const Shape& shape, const std::string& name, at::ScalarType dtype) {
  return normal_tensor(shape, name, dtype);
}

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::kDouble);
}

/// Half a unit in the last place, and a little for fp32 arithmetic before the rounding.
double rounding_of(at::ScalarType dtype) {
  return (dtype == at::kBFloat16 ? 0x1p-9 : 0x1p-12) + 2e-6;
}

/// Every element of `actual` is `expected` rounded to its dtype; `slack`: of fp32 arithmetic, in
/// units of the largest element.
void require_rounded(const at::Tensor& expected,
                     const at::Tensor& actual,
                     const std::string& what,
                     double slack = 2e-6) {
  INFO(what);
  const double unit = actual.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const double smallest = actual.scalar_type() == at::kBFloat16 ? 0 : 0x1p-25;
  const at::Tensor size = expected.abs();
  const at::Tensor allowed = size.mul(unit).add(smallest).add(size.max().mul(slack));
  const at::Tensor excess = wide(actual).sub(expected).abs().sub(allowed);
  REQUIRE(excess.max().item<double>() <= 0);
}

}  // namespace

TEST_CASE("bias and activation of 16 bits", "[kernels][half]") {
  for (const at::ScalarType dtype : kHalves) {
    for (const ActivationKind kind :
         {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
      for (const Shape& size : kHalfSizes) {
        const at::Tensor pre = normal_half(size, "pre", dtype);
        const at::Tensor bias = normal_half({size[1]}, "bias", dtype);
        const at::Tensor grad = normal_half(size, "grad", dtype);
        require_rounded(kernels::bias_act_forward(wide(pre), wide(bias), kind),
                        kernels::bias_act_forward(pre, bias, kind),
                        "activation");
        const auto expected = kernels::bias_act_backward(wide(grad), wide(pre), wide(bias), kind);
        const auto result = kernels::bias_act_backward(grad, pre, bias, kind);
        require_rounded(expected.pre_mf, result.pre_mf, "gradient before activation");
        REQUIRE(result.bias_f.scalar_type() == at::kFloat);
        require_close(expected.bias_f, result.bias_f, 1e-5, "gradient of bias");
      }
    }
  }
}

TEST_CASE("swiglu of 16 bits", "[kernels][half]") {
  for (const at::ScalarType dtype : kHalves) {
    for (const Shape& size : kHalfSizes) {
      const at::Tensor gate = normal_half(size, "gate", dtype);
      const at::Tensor up = normal_half(size, "up", dtype);
      const at::Tensor grad = normal_half(size, "grad", dtype);
      require_rounded(kernels::swiglu_forward(wide(gate), wide(up)),
                      kernels::swiglu_forward(gate, up),
                      "swiglu");
      const auto expected = kernels::swiglu_backward(wide(grad), wide(gate), wide(up));
      const auto result = kernels::swiglu_backward(grad, gate, up);
      require_rounded(expected.gate, result.gate, "gate gradient");
      require_rounded(expected.up, result.up, "up gradient");
    }
  }
}

TEST_CASE("LayerNorm of 16 bits has statistics and sums of fp32", "[kernels][half]") {
  for (const at::ScalarType dtype : kHalves) {
    for (const Shape& size : {Shape{1, 7}, Shape{3, 5}, Shape{7, 33}, Shape{300, 96}}) {
      // a mean far from zero: 16-bit statistics would be off by several percent
      const at::Tensor x = normal_half(size, "x", dtype).add(20);
      const at::Tensor weight = normal_half({size[1]}, "weight", dtype);
      const at::Tensor bias = normal_half({size[1]}, "bias", dtype);
      const at::Tensor grad = normal_half(size, "grad", dtype);
      const at::Tensor residual = normal_half(size, "residual", dtype);
      const auto expected = kernels::layer_norm_forward(wide(x), wide(weight), wide(bias), 1e-5);
      const auto result = kernels::layer_norm_forward(x, weight, bias, 1e-5);
      REQUIRE(result.mean_m.scalar_type() == at::kFloat);
      require_close(expected.mean_m, result.mean_m, 1e-6, "mean");
      require_close(expected.rstd_m, result.rstd_m, 2e-5, "rstd");
      require_rounded(expected.y_mh, result.y_mh, "y", 1e-4);
      const at::Tensor wide_x = wide(x);
      const at::Tensor wide_weight = wide(weight);
      const auto wide_grad = kernels::layer_norm_backward(
          wide(grad), {wide_x, wide_weight, expected.mean_m, expected.rstd_m}, wide(residual));
      const auto half_grad =
          kernels::layer_norm_backward(grad, {x, weight, result.mean_m, result.rstd_m}, residual);
      require_rounded(wide_grad.x_mh, half_grad.x_mh, "gradient of x", 1e-4);
      require_close(wide_grad.weight_h, half_grad.weight_h, 1e-4, "gradient of weight");
      require_close(wide_grad.bias_h, half_grad.bias_h, 1e-5, "gradient of bias");
      REQUIRE(half_grad.weight_h.scalar_type() == at::kFloat);
    }
  }
}

TEST_CASE("dropout of 16 bits keeps the elements that fp64 keeps", "[kernels][half]") {
  for (const at::ScalarType dtype : kHalves) {
    const kernels::DropoutKey key{stream_key(1, "site"), 7, 13, 0.3};
    const at::Tensor x = normal_half({1027}, "x", dtype);
    const at::Tensor residual = normal_half({1027}, "residual", dtype);
    require_rounded(kernels::dropout(wide(x), wide(residual), key),
                    kernels::dropout(x, residual, key),
                    "dropout with residual");
    require_rounded(kernels::dropout(wide(x), {}, key), kernels::dropout(x, {}, key), "dropout");
  }
}

TEST_CASE("token loss of 16 bits", "[kernels][half]") {
  const double smoothing = GENERATE(0.0, 0.2);
  for (const at::ScalarType dtype : kHalves) {
    for (const std::int64_t vocabulary : {1, 5, 33, 250}) {
      at::Tensor logits = normal_half({37, vocabulary + 2}, "logits", dtype).mul(4);
      at::Tensor labels = at::arange(37).remainder(vocabulary);
      labels.select(0, 3).fill_(kIgnoreLabel);
      at::Tensor expected = wide(logits);
      const double loss = kernels::token_loss(expected, labels, vocabulary, 1.0, smoothing);
      const at::Tensor before = logits.clone();
      const double seen = kernels::token_loss(logits, labels, vocabulary, std::nullopt, smoothing);
      REQUIRE(at::equal(before, logits));
      REQUIRE(seen == Approx(loss).epsilon(1e-6).margin(1e-6));
      const double scale = kernels::loss_grad_scale(dtype);
      at::Tensor composed = logits.clone();
      const double also =
          kernels::composed_token_loss(composed, labels, vocabulary, scale, smoothing)
              .item<double>();
      REQUIRE(also == Approx(loss).epsilon(1e-6).margin(1e-5));
      REQUIRE(kernels::token_loss(logits, labels, vocabulary, scale, smoothing) == seen);
      require_rounded(expected.mul(scale), logits, "gradient");
      // rounded before and after the targets are spread
      require_close(wide(logits), wide(composed), 0x1p-6, "gradient of the composed loss");
    }
  }
}

TEST_CASE("fp16 keeps the gradients of improbable tokens", "[kernels][half]") {
  const std::int64_t vocabulary = 50'000;  // 1 / 50 000 = 2e-5 is a subnormal number of fp16
  at::Tensor logits = at::zeros({1, vocabulary}, at::kHalf);
  const double scale = kernels::loss_grad_scale(at::kHalf);
  (void)kernels::token_loss(logits, at::zeros({1}, at::kLong), vocabulary, scale);
  const double kept = logits.select(1, 1).item<double>() / scale;
  REQUIRE(kept == Approx(2e-5).epsilon(0x1p-11));
}

TEST_CASE("attention of 16 bits equals fp64 for both kernels and for documents",
          "[kernels][half]") {
  for (const at::ScalarType dtype : kHalves) {
    for (const std::int64_t head_dim : {16, 6}) {
      const kernels::AttentionShape shape{4, 2, head_dim, true};
      const at::Tensor qkv = normal_half({2, 19, 8 * head_dim}, "qkv", dtype);
      const at::Tensor grad = normal_half({2, 19, 4 * head_dim}, "grad", dtype);
      const at::Tensor starts = at::full({2, 19}, 0, at::kLong);
      starts.narrow(1, 7, 12).fill_(7);
      for (const at::Tensor& documents : {at::Tensor(), starts}) {
        const auto expected = kernels::attention_forward(wide(qkv), shape, documents);
        const auto result = kernels::attention_forward(qkv, shape, documents);
        REQUIRE(result.context_bsh.scalar_type() == dtype);
        require_rounded(expected.context_bsh, result.context_bsh, "context");
        require_close(expected.log_sum, result.log_sum, 1e-5, "log-sums");
        const at::Tensor wide_grad =
            kernels::attention_backward(wide(grad), wide(qkv), expected, shape, documents);
        const at::Tensor half_grad =
            kernels::attention_backward(grad, qkv, result, shape, documents);
        REQUIRE(half_grad.scalar_type() == dtype);
        // the rounded context enters the gradient, too
        require_close(wide_grad, half_grad, 2 * rounding_of(dtype), "gradient");
      }
    }
  }
}

TEST_CASE("gradients of a table are those of ATen; rows nobody asked for get zero",
          "[kernels][half]") {
  const at::Tensor indices = at::arange(41).mul(7).remainder(11);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor grad = normal_tensor({41, 19}, "grad", dtype);
    const at::Tensor expected = at::embedding_dense_backward(wide(grad), indices, 13, -1, false);
    const at::Tensor result = kernels::embedding_backward(grad, indices, 13);
    REQUIRE(result.scalar_type() == dtype);
    require_rounded(expected, result, "gradient of a table");
    REQUIRE(at::equal(result.narrow(0, 11, 2), at::zeros({2, 19}, result.options())));
  }
}

TEST_CASE("the gradient of a frequent token does not stop growing at 16 bits", "[kernels][half]") {
  const std::int64_t uses = 5000;
  const at::Tensor grad = at::ones({uses, 3}, at::kBFloat16);
  const at::Tensor indices = at::zeros({uses}, at::kLong);
  const at::Tensor result = kernels::embedding_backward(grad, indices, 2);
  REQUIRE(result.select(0, 0).select(0, 0).item<double>() == 4992);  // 5000 to 8 bits
  const at::Tensor aten = at::embedding_dense_backward(grad, indices, 2, -1, false);
  REQUIRE(aten.select(0, 0).select(0, 0).item<double>() < 300);  // why ours exists
}

}  // namespace colossal::test
