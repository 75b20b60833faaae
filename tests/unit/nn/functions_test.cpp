// Do the gradients of every differentiable function equal finite differences?
#include "nn/functions.hpp"

#include "core/batch.hpp"
#include "support/close.hpp"
#include "support/gradcheck.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

namespace colossal::test {

TEST_CASE("gradients of linear", "[functions]") {
  const std::vector<at::Tensor> inputs = {
      normal_leaf({2, 3, 5}, "x"), normal_leaf({4, 5}, "w"), normal_leaf({4}, "b")};
  check_gradients(
      "linear",
      [](const std::vector<at::Tensor>& in) { return linear(in[0], in[1], in[2]); },
      inputs);
  check_gradients(
      "linear without bias",
      [](const std::vector<at::Tensor>& in) { return linear(in[0], in[1], at::Tensor{}); },
      {inputs[0], inputs[1]});
  for (const ActivationKind kind :
       {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
    check_gradients(
        "linear with activation",
        [kind](const std::vector<at::Tensor>& in) { return linear(in[0], in[1], in[2], kind); },
        inputs);
  }
}

TEST_CASE("linear of an input without gradient gives the weight's", "[functions]") {
  const at::Tensor x = normal_tensor({2, 3, 5}, "x");
  check_gradients("frozen input",
                  [&](const std::vector<at::Tensor>& in) { return linear(x, in[0], in[1]); },
                  {normal_leaf({4, 5}, "w"), normal_leaf({4}, "b")});
}

TEST_CASE("gradients of a LayerNorm fork, either result used or both", "[functions]") {
  const std::vector<at::Tensor> inputs = {
      normal_leaf({2, 3, 5}, "x"), normal_leaf({5}, "w"), normal_leaf({5}, "b")};
  check_gradients(
      "norm",
      [](const std::vector<at::Tensor>& in) {
        return layer_norm_fork(in[0], in[1], in[2], 1e-5).first;
      },
      inputs);
  check_gradients(
      "norm and residual",
      [](const std::vector<at::Tensor>& in) {
        const auto [y, x] = layer_norm_fork(in[0], in[1], in[2], 1e-5);
        return y.mul(y).add(x);
      },
      inputs);
  check_gradients("residual only",
                  [](const std::vector<at::Tensor>& in) {
                    return layer_norm_fork(in[0], in[1], in[2], 1e-5).second.mul(2);
                  },
                  {inputs[0], normal_tensor({5}, "w"), normal_tensor({5}, "b")});
}

TEST_CASE("gradients of dropout, with and without residual", "[functions]") {
  const kernels::DropoutKey key{stream_key(5, "site"), 3, 11, 0.4};
  check_gradients(
      "dropout and residual",
      [&](const std::vector<at::Tensor>& in) { return keyed_dropout(in[0], in[1], key); },
      {normal_leaf({2, 3, 5}, "x"), normal_leaf({2, 3, 5}, "r")});
  check_gradients("dropout",
                  [&](const std::vector<at::Tensor>& in) { return keyed_dropout(in[0], {}, key); },
                  {normal_leaf({2, 3, 5}, "x")});
}

TEST_CASE("gradients of swiglu", "[functions]") {
  check_gradients("swiglu",
                  [](const std::vector<at::Tensor>& in) { return swiglu(in[0], in[1]); },
                  {normal_leaf({2, 3, 5}, "gate"), normal_leaf({2, 3, 5}, "up")});
}

TEST_CASE("gradients of attention, grouped heads, causal or not", "[functions]") {
  for (const bool causal : {true, false}) {
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      const kernels::AttentionShape shape{4, kv_heads, 2, causal};
      check_gradients("attention",
                      [&](const std::vector<at::Tensor>& in) { return attention(in[0], shape); },
                      {normal_leaf({2, 3, (4 + 2 * kv_heads) * 2}, "qkv")});
    }
  }
}

TEST_CASE("gradients of the token loss", "[functions]") {
  at::Tensor labels = at::zeros({2, 3}, at::kLong);
  labels.select(1, 1).fill_(kIgnoreLabel);
  labels.select(1, 2).fill_(4);
  check_gradients(
      "token loss",
      [&](const std::vector<at::Tensor>& in) {
        return token_loss(in[0].mul(2), labels, 5).mul(3);  // the product is consumed, not the leaf
      },
      {normal_leaf({2, 3, 7}, "logits")});
  check_gradients("smoothed token loss",
                  [&](const std::vector<at::Tensor>& in) {
                    return token_loss(in[0].mul(2), labels, 5, {{}, 0.3}).mul(3);
                  },
                  {normal_leaf({2, 3, 7}, "logits")});
}

TEST_CASE("the token loss leaves logits alone where no gradient is wanted", "[functions]") {
  const at::Tensor logits = normal_tensor({2, 3, 7}, "logits");
  const at::Tensor kept = logits.clone();
  const at::Tensor labels = at::zeros({2, 3}, at::kLong);
  const at::Tensor loss = token_loss(logits, labels, 7);
  REQUIRE(loss.dim() == 0);
  REQUIRE(at::equal(kept, logits));
  const at::NoGradGuard no_grad;
  const at::Tensor leaf = normal_leaf({2, 3, 7}, "logits");
  REQUIRE(at::equal(token_loss(leaf, labels, 7), loss));
  REQUIRE(at::equal(leaf, kept));
}

TEST_CASE("what the loss will be multiplied by changes no gradient, known, guessed or unknown",
          "[functions]") {
  at::Tensor labels = at::arange(6, at::kLong).view({2, 3}).remainder(5);
  labels.select(1, 1).fill_(kIgnoreLabel);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor values = normal_tensor({2, 3, 7}, "logits").to(dtype);
    const auto gradient = [&](std::optional<double> known, double factor) {
      const at::Tensor logits = values.clone().set_requires_grad(true);
      const at::Tensor loss = token_loss(logits.mul(1), labels, 5, {known});
      loss.backward(at::full_like(loss, factor));
      return logits.grad().to(at::kDouble);
    };
    for (const double factor : {1.0, 0.37 / 4096, 65536.0 / 96}) {
      const at::Tensor expected = gradient({}, factor);
      const double step = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : 0x1p-6;
      INFO(c10::toString(dtype) << " times " << factor);
      for (const double known : {factor, 1.0, 3 * factor}) {
        REQUIRE(scaled_distance(expected, gradient(known, factor), 1e-12) < step);
      }
    }
  }
}

TEST_CASE("a linear layer adds to a residual", "[functions]") {
  const std::vector<at::Tensor> inputs = {normal_leaf({2, 3, 4}, "residual"),
                                          normal_leaf({2, 3, 5}, "x"),
                                          normal_leaf({4, 5}, "weight"),
                                          normal_leaf({4}, "bias")};
  check_gradients(
      "linear onto",
      [](const auto& in) { return linear_onto(in[0], in[1], in[2], in[3]); },
      inputs);
  const at::Tensor apart = linear(inputs[1], inputs[2], inputs[3]).add(inputs[0]);
  REQUIRE(at::equal(linear_onto(inputs[0], inputs[1], inputs[2], inputs[3]), apart));
  REQUIRE(at::equal(linear_onto(inputs[0], inputs[1], inputs[2], {}),
                    linear(inputs[1], inputs[2], at::Tensor{}).add(inputs[0])));
}

TEST_CASE("the loss of a head does not depend on how many logits exist at a time", "[functions]") {
  const double smoothing = GENERATE(0.0, 0.3);
  at::Tensor labels = at::arange(14, at::kLong).view({2, 7}).remainder(5);
  labels.select(1, 1).fill_(kIgnoreLabel);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto leaves = [&] {
      return std::pair{normal_tensor({2, 7, 6}, "x").to(dtype).set_requires_grad(true),
                       normal_tensor({8, 6}, "weight").to(dtype).set_requires_grad(true)};
    };
    const double step = dtype == at::kDouble ? 1e-14 : dtype == at::kFloat ? 1e-6 : 0x1p-5;
    for (const double known : {0.25, 0.5}) {  // as it arrives, and not
      const auto [x, weight] = leaves();
      const at::Tensor whole =
          token_loss(linear(x, weight, at::Tensor{}), labels, 5, {{}, smoothing});
      whole.backward(at::full_like(whole, 0.25));
      for (const std::int64_t rows : {1, 4, 5, 14, 100}) {
        const auto [part_x, part_weight] = leaves();
        const at::Tensor parts =
            head_loss(part_x, part_weight, labels, 5, {rows, {known, smoothing}});
        parts.backward(at::full_like(parts, 0.25));
        INFO(c10::toString(dtype) << ", " << rows << " rows, factor " << known);
        REQUIRE(scaled_distance(whole, parts) < step);
        REQUIRE(scaled_distance(x.grad(), part_x.grad()) < step);
        REQUIRE(scaled_distance(weight.grad(), part_weight.grad()) < step);
      }
    }
  }
}

}  // namespace colossal::test
