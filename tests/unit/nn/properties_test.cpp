// What must hold for attention, LayerNorm and the loss whatever their numbers? Laws that a
// reference with the same mistake would not show.
#include "core/batch.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <vector>

namespace colossal::test {
namespace {

constexpr kernels::AttentionShape kHeads{2, 1, 16, true};
constexpr std::int64_t kWidth = (2 + 2) * 16;

/// Packed q, k, v of a row of 37 tokens: several tiles, the last one partial.
at::Tensor packed(at::ScalarType dtype) {
  return normal_tensor({1, 37, kWidth}, "qkv", dtype);
}

bool is_zero(const at::Tensor& x) {
  return x.abs().max().item<double>() == 0;
}

}  // namespace

TEST_CASE("a token does not see what comes after it, to the last bit", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor qkv = packed(dtype);
    const at::Tensor context = kernels::attention_forward(qkv, kHeads).context_bsh;
    for (const std::int64_t first_changed : {1, 15, 16, 17, 32, 36}) {
      INFO("tokens from " << first_changed << " on changed");
      at::Tensor changed = qkv.clone();
      changed.narrow(1, first_changed, 37 - first_changed).mul_(-1e3).add_(7);
      const at::Tensor other = kernels::attention_forward(changed, kHeads).context_bsh;
      CHECK(at::equal(context.narrow(1, 0, first_changed), other.narrow(1, 0, first_changed)));
      CHECK_FALSE(at::equal(context, other));
    }
  }
}

TEST_CASE("a loss on one token gives later tokens no gradient", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor qkv = packed(dtype);
    const auto forward = kernels::attention_forward(qkv, kHeads);
    for (const std::int64_t token : {0, 15, 16, 30}) {
      at::Tensor grad = at::zeros_like(forward.context_bsh);
      grad.select(1, token).fill_(1);
      const at::Tensor back = kernels::attention_backward(grad, qkv, forward, kHeads);
      CHECK(is_zero(back.narrow(1, token + 1, 36 - token)));
      CHECK_FALSE(is_zero(back.select(1, token)));
      const at::Tensor queries = back.narrow(2, 0, 32);
      CHECK((token == 0 || is_zero(queries.narrow(1, 0, token))));  // other queries took no part
    }
  }
}

TEST_CASE("keys that are all alike give the mean of the values seen", "[properties]") {
  for (const bool causal : {true, false}) {
    kernels::AttentionShape shape = kHeads;
    shape.causal = causal;
    at::Tensor qkv = packed(at::kDouble);
    qkv.narrow(2, 32, 16).fill_(0.5);
    const at::Tensor values = qkv.narrow(2, 48, 16);
    const at::Tensor context = kernels::attention_forward(qkv, shape).context_bsh;
    for (const std::int64_t query : {0, 1, 16, 36}) {
      const at::Tensor seen = values.narrow(1, 0, causal ? query + 1 : 37).mean(1);
      const at::Tensor both_heads = at::cat({seen, seen}, 1);
      require_close(both_heads, context.select(1, query), 1e-12, "context");
    }
  }
}

TEST_CASE("heads that share keys and values equal heads with copies of them", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor qkv = packed(dtype);
    const at::Tensor q = qkv.narrow(2, 0, 32);
    const at::Tensor k = qkv.narrow(2, 32, 16);
    const at::Tensor v = qkv.narrow(2, 48, 16);
    const at::Tensor copied = at::cat({q, k, k, v, v}, 2);
    const kernels::AttentionShape own{2, 2, 16, true};
    const auto shared = kernels::attention_forward(qkv, kHeads);
    const auto separate = kernels::attention_forward(copied, own);
    require_close(separate.context_bsh, shared.context_bsh, tolerance_of(dtype), "context");
    const at::Tensor grad = normal_tensor({1, 37, 32}, "grad", dtype);
    const at::Tensor a = kernels::attention_backward(grad, qkv, shared, kHeads);
    const at::Tensor b = kernels::attention_backward(grad, copied, separate, own);
    const double tolerance = 10 * tolerance_of(dtype);
    require_close(b.narrow(2, 0, 32), a.narrow(2, 0, 32), tolerance, "queries");
    require_close(
        b.narrow(2, 32, 16).add(b.narrow(2, 48, 16)), a.narrow(2, 32, 16), tolerance, "keys");
    require_close(
        b.narrow(2, 64, 16).add(b.narrow(2, 80, 16)), a.narrow(2, 48, 16), tolerance, "values");
  }
}

TEST_CASE("rows of a batch do not see each other in attention", "[properties]") {
  const at::Tensor one = normal_tensor({1, 20, kWidth}, "one", at::kFloat);
  const at::Tensor two = normal_tensor({1, 20, kWidth}, "two", at::kFloat);
  const at::Tensor both = kernels::attention_forward(at::cat({one, two}), kHeads).context_bsh;
  CHECK(at::equal(both.narrow(0, 0, 1), kernels::attention_forward(one, kHeads).context_bsh));
  CHECK(at::equal(both.narrow(0, 1, 1), kernels::attention_forward(two, kHeads).context_bsh));
}

TEST_CASE("LayerNorm forgets the place and the scale of a row", "[properties]") {
  const at::Tensor weight = normal_tensor({33}, "weight");
  const at::Tensor bias = normal_tensor({33}, "bias");
  const at::Tensor x = normal_tensor({5, 33}, "x");
  const auto norm = [&](const at::Tensor& rows) {
    return kernels::layer_norm_forward(rows, weight, bias, 1e-12).y_mh;
  };
  require_close(norm(x), norm(x.mul(40).add(-300)), 1e-9, "y");
  require_close(norm(x).sub(bias).neg(), norm(x.neg()).sub(bias), 1e-12, "y of the negative");
}

TEST_CASE("a row without variance becomes the bias", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor bias = normal_tensor({9}, "bias", dtype);
    const at::Tensor weight = normal_tensor({9}, "weight", dtype);
    for (const double value : {0.0, 3.0, -1e4}) {
      const at::Tensor rows = at::full({2, 9}, value, at::dtype(dtype));
      const auto result = kernels::layer_norm_forward(rows, weight, bias, 1e-5);
      require_close(bias.expand({2, 9}), result.y_mh, 1e-3, "y");
      CHECK(std::isfinite(result.rstd_m.sum().item<double>()));
    }
  }
}

TEST_CASE("LayerNorm far from zero keeps the digits that fp32 has", "[properties]") {
  const at::Tensor x = normal_tensor({4, 64}, "x").add(1000);
  const at::Tensor ones = at::ones({64}, at::kDouble);
  const at::Tensor none = at::zeros({64}, at::kDouble);
  const at::Tensor narrow = x.to(at::kFloat);
  const auto exact = kernels::layer_norm_forward(narrow.to(at::kDouble), ones, none, 1e-5);
  const auto single =
      kernels::layer_norm_forward(narrow, ones.to(at::kFloat), none.to(at::kFloat), 1e-5);
  require_close(exact.y_mh, single.y_mh, 1e-3, "y");  // E[x^2] - E[x]^2 would be off by 0.06
}

TEST_CASE("the gradient of LayerNorm has no part along what it forgets", "[properties]") {
  const at::Tensor x = normal_tensor({6, 21}, "x").mul(2);
  const at::Tensor weight = normal_tensor({21}, "weight");
  const auto y = kernels::layer_norm_forward(x, weight, at::zeros({21}, at::kDouble), 1e-14);
  const auto grad = kernels::layer_norm_backward(
      normal_tensor({6, 21}, "grad"), {x, weight, y.mean_m, y.rstd_m}, {});
  const at::Tensor centred = x.sub(y.mean_m.unsqueeze(1));
  CHECK(grad.x_mh.sum(1).abs().max().item<double>() < 1e-10);
  CHECK(grad.x_mh.mul(centred).sum(1).abs().max().item<double>() < 1e-10);
  CHECK_FALSE(is_zero(grad.x_mh));
}

TEST_CASE("a model that knows nothing loses log V a token", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t vocabulary : {1, 2, 256, 50257}) {
      at::Tensor logits = at::full({3, vocabulary}, -2.5, at::dtype(dtype));
      const double loss = kernels::token_loss(logits, at::zeros({3}, at::kLong), vocabulary, 1.0);
      CHECK(loss == Approx(3 * std::log(static_cast<double>(vocabulary))).margin(1e-6));
      const double right = logits.select(1, 0).sum().item<double>();
      CHECK(right == Approx(3.0 / static_cast<double>(vocabulary) - 3).margin(1e-5));
    }
  }
}

TEST_CASE("the loss does not change when all logits of a row do", "[properties]") {
  const at::Tensor base = normal_tensor({8, 40}, "logits").mul(3);
  const at::Tensor labels = at::full({8}, 7, at::kLong);
  at::Tensor first = base.clone();
  const double loss = kernels::token_loss(first, labels, 40, 1.0);
  for (const double shift : {-700.0, 1.0, 1e4}) {
    at::Tensor shifted = base.add(shift);
    CHECK(kernels::token_loss(shifted, labels, 40, 1.0) == Approx(loss).epsilon(1e-9));
    require_close(first, shifted, 1e-9, "gradient");
  }
  CHECK(first.sum(1).abs().max().item<double>() < 1e-12);  // probabilities sum to one
}

TEST_CASE("a batch without labels has no loss and no gradient", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    at::Tensor logits = normal_tensor({4, 10}, "logits", dtype);
    const at::Tensor labels = at::full({4}, kIgnoreLabel, at::kLong);
    CHECK(kernels::token_loss(logits, labels, 10, 1.0) == 0);
    CHECK(is_zero(logits));
  }
}

// A run is stopped by its loss and its norm: a kernel that makes a number of a NaN would hide it.
TEST_CASE("what is not finite is not hidden by the loss", "[properties]") {
  for (const double value : {std::nan(""), HUGE_VAL}) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const std::int64_t column : {0, 3, 40}) {  // the first, one beside the label, a last one
        INFO(value << " in column " << column);
        at::Tensor logits = at::zeros({2, 41}, dtype);
        logits.select(0, 1).select(0, column).fill_(value);
        at::Tensor with_grad = logits.clone();
        const at::Tensor labels = at::ones({2}, at::kLong);
        CHECK_FALSE(std::isfinite(kernels::token_loss(logits, labels, 41, std::nullopt)));
        CHECK_FALSE(std::isfinite(kernels::token_loss(with_grad, labels, 41, 1.0)));
      }
    }
  }
}

TEST_CASE("a NaN in a key, a query or a value shows wherever it is seen", "[properties]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t column : {5, 40, 60}) {  // a query, a key, a value
      INFO("column " << column);
      at::Tensor qkv = packed(dtype);
      qkv.select(1, 20).select(1, column).fill_(std::nan(""));
      const at::Tensor context = kernels::attention_forward(qkv, kHeads).context_bsh;
      const bool only_own = column < 32;  // a query is seen by itself alone
      CHECK(std::isnan(context.select(1, 20).sum().item<double>()));
      CHECK(std::isnan(context.select(1, 36).sum().item<double>()) != only_own);
    }
  }
}

}  // namespace colossal::test
