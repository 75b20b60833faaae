// Do kernels that only move bytes move them as fast as the card can? Hidden from ordinary runs:
// cuda_nn_test "[.speed]" prints a table; on an H100 less than 2.0 TB/s is an error.
#include "cuda/kernel_helpers.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>

namespace colossal::test {
namespace {

constexpr std::int64_t kTokens = 32'768;

at::Tensor random(const Shape& shape, at::ScalarType dtype = at::kBFloat16) {
  return at::randn(shape, at::TensorOptions(at::kFloat).device(kGpu)).to(dtype);
}

/// Seconds of one call: of many that wait for nothing in between, after some to warm up.
double seconds_of(const std::function<void()>& call) {
  constexpr int kCalls = 50;
  for (int i = 0; i < 5; ++i) {
    call();
  }
  wait_for_device(kGpu);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) {
    call();
  }
  wait_for_device(kGpu);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
}

/// Prints the rate of a call that moves `bytes` at least.
void measure(const std::string& what, std::int64_t bytes, const std::function<void()>& call) {
  const double seconds = seconds_of(call);
  const double rate = static_cast<double>(bytes) / seconds / 1e12;
  fmt::print("{:<44} {:8.1f} us {:6.2f} TB/s\n", what, seconds * 1e6, rate);
  if (survey_gpus().gpus.at(0).name.find("H100") != std::string::npos) {
    CHECK(rate >= 2.0);
  }
}

}  // namespace

TEST_CASE("GPU: rates of the kernels of a layer", "[.speed]") {
  NEEDS_GPUS(1)
  for (const std::int64_t hidden : {768, 1600, 4096}) {
    const at::Tensor x = random({kTokens, hidden});
    const at::Tensor y = random({kTokens, hidden});
    const at::Tensor residual = random({kTokens, hidden});
    const at::Tensor weight = random({hidden});
    const std::int64_t bytes = 2 * kTokens * hidden;
    const auto named = [&](const std::string& kernel) {
      return fmt::format("{} {}", kernel, hidden);
    };
    const auto norm = kernels::layer_norm_forward(x, weight, weight, 1e-5);
    measure(named("layer norm"), 2 * bytes, [&] {
      (void)kernels::layer_norm_forward(x, weight, weight, 1e-5);
    });
    measure(named("layer norm backward, residual"), 4 * bytes, [&] {
      (void)kernels::layer_norm_backward(y, {x, weight, norm.mean_m, norm.rstd_m}, residual);
    });
    measure(named("dropout and residual"), 3 * bytes, [&] {
      (void)kernels::dropout(x, residual, {1, 2, 0, 0.1});
    });
    measure(named("sums of columns"), bytes, [&] { (void)kernels::column_sums(x); });
  }
}

TEST_CASE("GPU: rates of the kernels of a feed-forward layer", "[.speed]") {
  NEEDS_GPUS(1)
  for (const std::int64_t width : {3072, 6400}) {
    const at::Tensor x = random({kTokens, width});
    const at::Tensor y = random({kTokens, width});
    const at::Tensor bias = random({width});
    const std::int64_t bytes = 2 * kTokens * width;
    for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
      const std::string name =
          kind == ActivationKind::gelu ? "bias and gelu" : "bias and gelu_tanh";
      measure(fmt::format("{} {}", name, width), 2 * bytes, [&] {
        (void)kernels::bias_act_forward(x, bias, kind);
      });
      measure(fmt::format("{} backward {}", name, width), 3 * bytes, [&] {
        (void)kernels::bias_act_backward(y, x, bias, kind);
      });
    }
    measure(
        fmt::format("swiglu {}", width), 3 * bytes, [&] { (void)kernels::swiglu_forward(x, y); });
    measure(fmt::format("swiglu backward {}", width), 5 * bytes, [&] {
      (void)kernels::swiglu_backward(x, y, x);
    });
  }
}

TEST_CASE("GPU: rates of the loss and of tables", "[.speed]") {
  NEEDS_GPUS(1)
  constexpr std::int64_t kRows = 16'384;
  constexpr std::int64_t kVocabulary = 50'257;
  constexpr std::int64_t kPadded = 50'304;
  constexpr std::int64_t kHidden = 768;
  at::Tensor logits = random({kRows, kPadded});
  const at::TensorOptions indices(at::TensorOptions(at::kLong).device(kGpu));
  const at::Tensor labels = at::arange(kRows, indices).mul(7919).remainder(kVocabulary);
  const std::int64_t bytes = 2 * kRows * kPadded;
  // one reading from memory and one writing: the second reading is meant to come from the cache
  measure("token loss and gradient", 2 * bytes, [&] {
    (void)kernels::token_loss_tensor(logits, labels, kVocabulary, 1.0);
  });
  measure("token loss", bytes, [&] {
    (void)kernels::token_loss_tensor(logits, labels, kVocabulary, std::nullopt);
  });
  const at::Tensor one = at::full({}, 1.0, at::TensorOptions(at::kFloat).device(kGpu));
  measure("scale of the gradient", 2 * bytes, [&] { kernels::scale_loss_grad(logits, one, 2); });
  const at::Tensor table = random({kPadded, kHidden});
  const at::Tensor tokens = at::arange(kTokens, indices).mul(7919).remainder(kVocabulary);
  const at::Tensor grad = random({kTokens, kHidden});
  measure("rows of a table", 4 * kTokens * kHidden, [&] {
    (void)kernels::embedding_forward(table, tokens);
  });
  const double seconds =
      seconds_of([&] { (void)kernels::embedding_backward(grad, tokens, kPadded); });
  fmt::print("{:<44} {:8.1f} us, sort included\n", "gradient of a table", seconds * 1e6);
}

}  // namespace colossal::test
