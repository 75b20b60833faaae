// Do gradients of layers on a GPU agree with finite differences, and layers of both devices with
// each other?
#include "nn/functions.hpp"

#include "cuda/kernel_helpers.hpp"
#include "support/gradcheck.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace colossal::test {
namespace {

/// The function on a GPU, its inputs and its result on the CPU.
TensorFunction there(TensorFunction function) {
  return [function = std::move(function)](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& input : inputs) {
      moved.push_back(input.to(kGpu));
    }
    return function(moved).cpu();
  };
}

}  // namespace

TEST_CASE("GPU: gradients of linear layers", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  const std::vector<at::Tensor> inputs = {
      normal_leaf({2, 3, 5}, "x"), normal_leaf({4, 5}, "weight"), normal_leaf({4}, "bias")};
  check_gradients(
      "linear", there([](const auto& in) { return linear(in[0], in[1], in[2]); }), inputs);
  for (const ActivationKind kind :
       {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
    for (const Rebuild rebuild : {Rebuild::nothing, Rebuild::output, Rebuild::product}) {
      check_gradients(
          "linear and activation",
          there([&](const auto& in) { return linear(in[0], in[1], in[2], kind, rebuild); }),
          inputs);
    }
  }
}

TEST_CASE("GPU: gradients of norms, gates and dropout", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  check_gradients("layer norm with its residual",
                  there([](const auto& in) {
                    const auto [y, x] = layer_norm_fork(in[0], in[1], in[2], 1e-5);
                    return y.mul(2).add(x);
                  }),
                  {normal_leaf({3, 7}, "x"), normal_leaf({7}, "weight"), normal_leaf({7}, "bias")},
                  1e-6);
  check_gradients("swiglu",
                  there([](const auto& in) { return swiglu(in[0], in[1]); }),
                  {normal_leaf({3, 5}, "gate"), normal_leaf({3, 5}, "up")});
  const kernels::DropoutKey key{stream_key(3, "site"), 1, 2, 0.4};
  check_gradients("dropout",
                  there([&](const auto& in) { return keyed_dropout(in[0], in[1], key); }),
                  {normal_leaf({3, 5}, "x"), normal_leaf({3, 5}, "residual")});
}

TEST_CASE("GPU: gradients of attention", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const bool causal : {true, false}) {
    const kernels::AttentionShape shape{4, 2, 3, causal};
    check_gradients("attention",
                    there([&](const auto& in) { return attention(in[0], shape); }),
                    {normal_leaf({2, 5, 24}, "qkv")},
                    1e-6);
  }
  const at::Tensor starts = at::arange(5, at::kLong).sub(at::arange(5, at::kLong).remainder(2));
  const at::Tensor starts_bs = starts.expand({2, 5}).contiguous().to(kGpu);
  check_gradients(
      "attention of documents",
      there([&](const auto& in) { return attention(in[0], {4, 2, 3, true}, starts_bs); }),
      {normal_leaf({2, 5, 24}, "qkv")},
      1e-6);
}

TEST_CASE("GPU: gradients of tables and of the loss", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  const at::Tensor indices = at::arange(9, at::kLong).mul(5).remainder(4).view({3, 3}).to(kGpu);
  check_gradients("embedding",
                  there([&](const auto& in) { return embedding(in[0], indices); }),
                  {normal_leaf({4, 5}, "table")});
  const at::Tensor labels = at::arange(3, at::kLong).view({1, 3}).to(kGpu);
  check_gradients("token loss",
                  there([&](const auto& in) { return token_loss(in[0].mul(2), labels, 5).mul(3); }),
                  {normal_leaf({1, 3, 6}, "logits")});
}

TEST_CASE("GPU: layers of 16 bits give what the CPU gives", "[cuda][half]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](at::Device device) {
      const auto leaf = [&](const Shape& shape, const std::string& name) {
        return normal_tensor(shape, name, dtype).mul(0.25).to(device).set_requires_grad(true);
      };
      const at::Tensor x = leaf({2, 9, 64}, "x");
      const at::Tensor up = leaf({128, 64}, "up");
      const at::Tensor up_bias = leaf({128}, "up_bias");
      const at::Tensor down = leaf({64, 128}, "down");
      const at::Tensor down_bias = leaf({64}, "down_bias");
      const at::Tensor hidden = linear(x, up, up_bias, ActivationKind::gelu);
      const at::Tensor y = linear(hidden, down, down_bias);
      y.sum().backward();
      std::vector<at::Tensor> results = {y};
      for (const at::Tensor& input : {x, up, up_bias, down, down_bias}) {
        results.push_back(input.grad());
      }
      return results;
    };
    const std::vector<at::Tensor> cpu = run(at::kCPU);
    const std::vector<at::Tensor> gpu = run(kGpu);
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      require_close(cpu[i], gpu[i], 2 * step_of(dtype), "result " + std::to_string(i));
    }
  }
}

TEST_CASE("GPU: a head that makes some logits at a time gives what one with all gives",
          "[cuda][half]") {
  NEEDS_GPUS(1)
  const at::Tensor labels = at::arange(48, at::kLong).view({1, 48}).mul(7).remainder(40).to(kGpu);
  const auto run = [&](at::ScalarType dtype, std::int64_t rows) {
    const auto leaf = [&](const Shape& shape, const std::string& name) {
      return normal_tensor(shape, name).mul(0.25).to(dtype).to(kGpu).set_requires_grad(true);
    };
    const at::Tensor x = leaf({1, 48, 32}, "x");
    const at::Tensor weight = leaf({48, 32}, "weight");
    weight.mutable_grad() = at::zeros_like(weight);
    const double factor = 1.0 / 48;
    const at::Tensor loss = rows == 0 ? token_loss(linear(x, weight, {}), labels, 40, {factor})
                                      : head_loss(x, weight, labels, 40, {rows, {factor}});
    loss.backward(at::full_like(loss, factor));
    return std::vector<at::Tensor>{loss, x.grad(), weight.grad()};
  };
  const auto exact = run(at::kDouble, 0);
  for (const std::int64_t rows : {0, 16, 20}) {
    const auto found = run(at::kBFloat16, rows);
    for (std::size_t i = 0; i < found.size(); ++i) {
      require_close(exact[i], found[i], 4 * step_of(at::kBFloat16), "result " + std::to_string(i));
    }
  }
}

}  // namespace colossal::test
