// What do kernels of rows make of numbers at the edge, of no rows at all, and of one?
#include "nn/functions.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/few_rows.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"
#include "support/close.hpp"
#include "unit/nn/edge_numbers.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace colossal::test {

TEST_CASE("no rows, and no columns, are no trouble", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    INFO(c10::toString(dtype));
    for (const Shape& shape : {Shape{0, 5}, Shape{0, 64}}) {
      const at::Tensor none = at::empty(shape, dtype);
      const at::Tensor bias = at::ones({shape[1]}, dtype);
      for (const ActivationKind kind :
           {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
        CHECK(kernels::bias_act_forward(none, bias, kind).sizes() == none.sizes());
        const auto grad = kernels::bias_act_backward(none, none, bias, kind);
        CHECK(grad.pre_mf.sizes() == none.sizes());
        require_all(grad.bias_f, 0);
      }
      CHECK(kernels::swiglu_forward(none, none).sizes() == none.sizes());
      require_all(kernels::column_sums(none), 0);
      CHECK(kernels::dropout(none, none, {1, 2, 3, 0.5}).sizes() == none.sizes());
      const auto norm = kernels::layer_norm_forward(none, bias, bias, 1e-5);
      CHECK(norm.y_mh.sizes() == none.sizes());
      const auto back =
          kernels::layer_norm_backward(none, {none, bias, norm.mean_m, norm.rstd_m}, {});
      require_all(back.weight_h, 0);
      require_all(back.bias_h, 0);
      at::Tensor logits = at::empty(shape, dtype);
      CHECK(kernels::token_loss(logits, at::empty({0}, at::kLong), shape[1], 1.0) == 0);
    }
    const at::Tensor table = normal_tensor({4, 3}, "table", dtype);
    const at::Tensor nobody = at::empty({0}, at::kLong);
    CHECK(kernels::embedding_forward(table, nobody).numel() == 0);
    require_all(kernels::embedding_backward(at::empty({0, 3}, dtype), nobody, 4), 0);
  }
}

TEST_CASE("a table gives back its very rows, whatever they hold", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    INFO(c10::toString(dtype));
    at::Tensor table = normal_tensor({5, kWide}, "table", dtype);
    table.select(0, 2).fill_(kNan);
    table.select(0, 3).fill_(-kInfinity);
    table.select(0, 4).fill_(smallest(dtype));
    const at::Tensor rows = kernels::embedding_forward(table, at::arange(9).remainder(5));
    for (std::int64_t i = 0; i < 9; ++i) {
      const at::Tensor expected = table.select(0, i % 5);
      if (i % 5 == 2) {
        require_all(rows.select(0, i), kNan);
      } else {
        CHECK(at::equal(rows.select(0, i), expected));
      }
    }
    const at::Tensor matrix = kernels::embedding_forward(table, at::arange(4).view({2, 2}));
    CHECK(matrix.sizes() == at::IntArrayRef({2, 2, kWide}));
  }
}

TEST_CASE("gradients of a table are sums of rows in their order", "[kernels][extremes]") {
  // In fp32, 2^24 + 1 + 1 is 2^24, and 1 + 1 + 2^24 is 2^24 + 2: the order shows.
  const at::Tensor large_first = at::full({3, 2}, 1, at::kFloat);
  large_first.select(0, 0).fill_(0x1p24);
  const at::Tensor large_last = at::full({3, 2}, 1, at::kFloat);
  large_last.select(0, 2).fill_(0x1p24);
  const at::Tensor same = at::full({3}, 1, at::kLong);
  require_all(kernels::embedding_backward(large_first, same, 3).select(0, 1), 0x1p24);
  require_all(kernels::embedding_backward(large_last, same, 3).select(0, 1), 0x1p24 + 2);
  at::Tensor bad = at::ones({2, 2}, at::kFloat);
  bad.select(0, 1).fill_(kNan);
  const at::Tensor grad = kernels::embedding_backward(bad, at::arange(2), 3);
  require_all(grad.select(0, 0), 1);
  require_all(grad.select(0, 1), kNan);
  require_all(grad.select(0, 2), 0);
}

TEST_CASE("LayerNorm spoils the rows that are spoiled, and no others", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const double value : {kNan, kInfinity, -kInfinity}) {
      INFO(c10::toString(dtype) << " " << value);
      at::Tensor x = normal_tensor({3, kWide}, "x", dtype);
      const at::Tensor weight = normal_tensor({kWide}, "weight", dtype);
      const auto clean = kernels::layer_norm_forward(x, weight, weight, 1e-5);
      x.select(0, 1).select(0, 20).fill_(value);
      const auto result = kernels::layer_norm_forward(x, weight, weight, 1e-5);
      require_all(result.y_mh.select(0, 1), kNan);
      CHECK(at::equal(result.y_mh.select(0, 0), clean.y_mh.select(0, 0)));
      CHECK(at::equal(result.y_mh.select(0, 2), clean.y_mh.select(0, 2)));
    }
  }
}

TEST_CASE("LayerNorm of one column is its bias", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    const at::Tensor x = normal_tensor({6, 1}, "x", dtype).mul(100);
    const at::Tensor weight = at::full({1}, 3, at::dtype(dtype));
    const at::Tensor bias = at::full({1}, -2, at::dtype(dtype));
    const auto result = kernels::layer_norm_forward(x, weight, bias, 1e-5);
    require_all(result.y_mh, -2);
    CHECK(at::equal(result.mean_m, x.view(-1).to(result.mean_m.scalar_type())));
    const auto grad = kernels::layer_norm_backward(
        at::ones({6, 1}, dtype), {x, weight, result.mean_m, result.rstd_m}, {});
    require_all(grad.x_mh, 0);
    require_all(grad.weight_h, 0);
    require_all(grad.bias_h, 6);
  }
}

TEST_CASE("sums of columns are exact where rows cancel", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const std::int64_t rows : {1, 2, 7, 64, 1000}) {
      INFO(c10::toString(dtype) << " " << rows);
      const at::Tensor ones = at::ones({rows, kWide}, dtype);
      require_all(kernels::column_sums(ones), static_cast<double>(rows));
      const at::Tensor x = normal_tensor({rows, kWide}, "x", dtype);
      const at::Tensor sums = kernels::column_sums(x);
      CHECK(sums.scalar_type() == (dtype == at::kDouble ? at::kDouble : at::kFloat));
      require_close(x.to(at::kDouble).sum(0), sums, dtype == at::kDouble ? 1e-13 : 3e-6, "sums");
    }
  }
}

TEST_CASE("few rows: none, one input, and numbers that are none", "[kernels][extremes]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor weight = normal_tensor({5, kWide}, "weight", dtype);
    const at::Tensor bias = normal_tensor({5}, "bias", dtype);
    CHECK(kernels::linear_few_rows(at::empty({0, kWide}, dtype), weight, bias).sizes() ==
          at::IntArrayRef({0, 5}));
    const at::Tensor one = kernels::linear_few_rows(
        at::full({2, 1}, 3, at::dtype(dtype)), at::full({4, 1}, -2, at::dtype(dtype)), {});
    require_all(one, -6);
    at::Tensor x = normal_tensor({3, kWide}, "x", dtype);
    const at::Tensor clean = kernels::linear_few_rows(x, weight, bias);
    x.select(0, 1).select(0, 36).fill_(kInfinity);
    const at::Tensor spoiled = kernels::linear_few_rows(x, weight, bias);
    CHECK(spoiled.select(0, 1).isinf().all().item<bool>());
    CHECK(at::equal(spoiled.select(0, 0), clean.select(0, 0)));
    CHECK(at::equal(spoiled.select(0, 2), clean.select(0, 2)));
    require_all(kernels::linear_few_rows(at::zeros({2, kWide}, dtype), weight, {}), 0);
  }
}

TEST_CASE("attention of one token is its value", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const bool causal : {true, false}) {
      const kernels::AttentionShape shape{2, 2, 16, causal};
      at::Tensor qkv = normal_tensor({3, 1, 96}, "qkv", dtype).mul(10);
      const auto result = kernels::attention_forward(qkv, shape);
      CHECK(at::equal(result.context_bsh, qkv.narrow(2, 64, 32)));
      const at::Tensor grad = normal_tensor({3, 1, 32}, "grad", dtype);
      const at::Tensor back = kernels::attention_backward(grad, qkv, result, shape);
      require_close(grad, back.narrow(2, 64, 32), dtype == at::kBFloat16 ? 1e-2 : 2e-3, "values");
      CHECK(back.narrow(2, 0, 64).abs().max().item<double>() <= 0.5);  // scores matter to nobody
    }
  }
}

TEST_CASE("attention to a key that beats all others is the value of that key",
          "[kernels][extremes]") {
  const kernels::AttentionShape shape{1, 1, 16, false};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at::Tensor qkv = normal_tensor({1, 33, 48}, "qkv", dtype);
    qkv.narrow(2, 0, 16).fill_(50);
    qkv.narrow(2, 16, 16).fill_(-50);
    qkv.select(1, 17).narrow(1, 16, 16).fill_(50);  // scores of +-10000
    const auto result = kernels::attention_forward(qkv, shape);
    const at::Tensor value = qkv.select(1, 17).narrow(1, 32, 16);
    for (std::int64_t query = 0; query < 33; ++query) {
      CHECK(at::equal(result.context_bsh.select(1, query), value));
    }
    CHECK(result.log_sum.isfinite().all().item<bool>());
    const at::Tensor back =
        kernels::attention_backward(at::ones({1, 33, 16}, dtype), qkv, result, shape);
    require_all(back.select(1, 17).narrow(1, 32, 16), 33);
    CHECK(back.isfinite().all().item<bool>());
  }
}

TEST_CASE("losses of logits as large as there are", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    INFO(c10::toString(dtype));
    const at::Tensor labels = at::zeros({2}, at::kLong);
    at::Tensor sure = at::full({2, kWide}, -largest(dtype) / 4, at::dtype(dtype));
    sure.select(1, 0).fill_(largest(dtype) / 4);
    at::Tensor wrong = sure.neg();
    const double scale = kernels::loss_grad_scale(dtype);
    CHECK(kernels::token_loss(sure, labels, kWide, scale) == 0);
    require_vanishing(sure);  // nothing to learn
    const double loss = kernels::token_loss(wrong, labels, kWide, scale);
    CHECK(loss > largest(dtype) / 4);
    require_all(wrong.select(1, 0), -scale);
    CHECK(wrong.narrow(1, 1, kWide - 1).to(at::kDouble).sum().item<double>() ==
          Approx(2 * scale).epsilon(dtype == at::kBFloat16 ? 1e-2 : 1e-3));
  }
}

TEST_CASE("columns beyond the vocabulary may hold anything", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    at::Tensor padded = normal_tensor({4, kWide}, "logits", dtype);
    at::Tensor plain = padded.narrow(1, 0, 30).contiguous();
    padded.select(1, 30).fill_(kNan);
    padded.select(1, 36).fill_(kInfinity);
    const at::Tensor labels = at::arange(4);
    CHECK(kernels::token_loss(padded, labels, 30, 1.0) ==
          kernels::token_loss(plain, labels, 30, 1.0));
    CHECK(at::equal(padded.narrow(1, 0, 30), plain));
    require_all(padded.narrow(1, 30, 7), 0);
  }
}

TEST_CASE("a linear layer takes views that are not contiguous", "[functions][extremes]") {
  const at::Tensor weight = normal_leaf({7, 5}, "weight");
  const at::Tensor bias = normal_leaf({7}, "bias");
  const at::Tensor base = normal_tensor({5, 3, 20}, "base");
  const at::Tensor view = base.permute({1, 2, 0});  // [3, 20, 5], the last dim strided
  for (const bool with_grad : {false, true}) {
    const at::AutoGradMode mode(with_grad);
    const at::Tensor expected = view.matmul(weight.t()).add(bias);
    require_close(expected, linear(view, weight, bias), 1e-13, "strided input");
    require_close(linear(view.contiguous(), weight, bias, ActivationKind::gelu),
                  linear(view, weight, bias, ActivationKind::gelu),
                  1e-13,
                  "with activation");
  }
}

}  // namespace colossal::test
