// Are gradients on a GPU replaced by the first write of a step and added to by later ones, without
// anybody zeroing them?
#include "nn/gradient.hpp"

#include "cuda/kernel_helpers.hpp"
#include "nn/functions.hpp"
#include "nn/kernels/cuda/columns.hpp"
#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/layer_norm.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>

#include <cmath>
#include <functional>
#include <vector>

namespace colossal::test {
namespace {

using Loss = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

const std::vector<at::ScalarType> kTypes = {at::kBFloat16, at::kHalf, at::kFloat};

std::vector<at::Tensor> leaves(const std::vector<Shape>& shapes, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(shapes[i].back()));
    all.push_back(normal_tensor(shapes[i], "leaf" + std::to_string(i))
                      .mul(scale)
                      .to(dtype)
                      .to(kGpu)
                      .set_requires_grad(true));
  }
  return all;
}

/// Two backward passes over gradients of garbage give twice the gradient of one without any.
/// `reference`: the same loss by another way, if not by the same.
void check_first_write(const std::vector<Shape>& shapes,
                       at::ScalarType dtype,
                       const Loss& loss,
                       const Loss& reference = {}) {
  const std::vector<at::Tensor> plain = leaves(shapes, dtype);
  (reference ? reference : loss)(plain).backward();
  const std::vector<at::Tensor> marked = leaves(shapes, dtype);
  for (const at::Tensor& leaf : marked) {
    leaf.mutable_grad() = at::full_like(leaf.detach(), std::nan(""));
    zero_before_accumulating(leaf);
    mark_unwritten(leaf.grad());
  }
  for (const double times : {1.0, 2.0}) {
    loss(marked).backward();
    for (std::size_t i = 0; i < marked.size(); ++i) {
      INFO(c10::toString(dtype) << ", leaf " << i << " of " << shapes[i] << ", times " << times);
      REQUIRE_FALSE(is_unwritten(marked[i].grad()));
      require_close(plain[i].grad().to(at::kFloat).mul(times),
                    marked[i].grad(),
                    dtype == at::kFloat ? 1e-5 : 2 * step_of(dtype),
                    "gradient");
    }
  }
}

}  // namespace

TEST_CASE("GPU: the first write of a gradient replaces it", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kTypes) {
    for (const std::int64_t rows : {15, 64}) {  // apart, in products
      check_first_write({{rows, 32}, {48, 32}, {48}}, dtype, [](const auto& in) {
        return linear(in[0], in[1], in[2]).to(at::kFloat).square().sum();
      });
      check_first_write({{rows, 32}, {64, 32}, {64}, {32, 64}, {32}}, dtype, [](const auto& in) {
        const at::Tensor inner = linear(in[0], in[1], in[2], ActivationKind::gelu_tanh);
        return linear(inner, in[3], in[4]).to(at::kFloat).square().sum();
      });
      check_first_write({{rows, 48}, {48}, {48}}, dtype, [](const auto& in) {
        const auto [y, x] = layer_norm_fork(in[0], in[1], in[2], 1e-5);
        return y.to(at::kFloat).square().sum().add(x.to(at::kFloat).sum());
      });
    }
  }
}

TEST_CASE("GPU: a linear layer takes the sums that the norm after it left", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kTypes) {
    const auto loss = [](const std::vector<at::Tensor>& in, bool apart) {
      const at::Tensor x = linear_onto(in[1], in[0], in[2], in[3]);
      // The gradient of a product with 1 is another array, of which no sums are known.
      const auto [y, fork] = layer_norm_fork(apart ? x.mul(1) : x, in[4], in[5], 1e-5);
      return y.to(at::kFloat).square().sum().add(fork.to(at::kFloat).sum());
    };
    check_first_write(
        {{1, 64, 32}, {1, 64, 48}, {48, 32}, {48}, {48}, {48}},
        dtype,
        [&](const auto& in) { return loss(in, false); },
        [&](const auto& in) { return loss(in, true); });
  }
}

namespace {

constexpr std::int64_t kHidden = 128;
constexpr kernels::AttentionShape kHeads{2, 2, kHidden / 2, true};

/// Half a block. `apart`: attention's gradient is another array, of which no sums are known.
at::Tensor attention_loss(const std::vector<at::Tensor>& in, bool apart) {
  const at::Tensor context = attention(linear(in[0], in[1], in[2]), kHeads);
  const at::Tensor x = linear_onto(in[0], apart ? context.mul(1) : context, in[3], in[4]);
  const auto [y, fork] = layer_norm_fork(x, in[5], in[6], 1e-5);
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return y.to(wide).pow(3).sum().add(fork.to(wide).square().sum());
}

at::Tensor bias_gradient(const std::vector<at::Tensor>& of, const at::Device& device, bool apart) {
  std::vector<at::Tensor> in;
  for (const at::Tensor& leaf : of) {
    const at::Tensor copy =
        device.is_cuda() ? leaf.detach().clone() : leaf.detach().to(at::kDouble);
    in.push_back(copy.to(device).set_requires_grad(true));
  }
  attention_loss(in, apart).backward();
  return in[2].grad();
}

}  // namespace

TEST_CASE("GPU: the gradient of attention's bias needs no pass over k and v", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const std::vector<at::Tensor> in = leaves({{2, 128, kHidden},
                                               {3 * kHidden, kHidden},
                                               {3 * kHidden},
                                               {kHidden, kHidden},
                                               {kHidden},
                                               {kHidden},
                                               {kHidden}},
                                              dtype);
    const at::Tensor exact = bias_gradient(in, at::kCPU, false);
    for (const bool apart : {false, true}) {
      INFO(c10::toString(dtype) << (apart ? " with" : " without") << " a pass");
      const at::Tensor gradient = bias_gradient(in, kGpu, apart);
      require_close(exact, gradient, 4 * step_of(dtype), "gradient");
      // A constant beside all keys changes nothing, but for rounding.
      REQUIRE(gradient.narrow(0, kHidden, kHidden).eq(0).all().item<bool>() == !apart);
    }
  }
}

TEST_CASE("GPU: sums that a norm left are those of its gradient, and end with it",
          "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const Shape& shape : kGrid) {
      const at::Tensor x = on_gpu(normal_tensor(shape, "x", dtype));
      const at::Tensor weight = on_gpu(normal_tensor({shape[1]}, "weight", dtype));
      const at::Tensor residual = on_gpu(normal_tensor(shape, "residual", dtype));
      const auto forward = kernels::layer_norm_forward(x, weight, weight, 1e-5);
      const auto grad =
          kernels::layer_norm_backward(x, {x, weight, forward.mean_m, forward.rstd_m}, residual);
      const double tolerance = dtype == at::kDouble ? 1e-11 : 1e-5;
      const at::Tensor sums = kernels::cuda::column_sums(grad.x_mh);
      require_close(grad.x_mh.to(at::kDouble).sum(0), sums, tolerance, "sums");
      REQUIRE(sums.is_same(kernels::cuda::column_sums(grad.x_mh)));
      grad.x_mh.add_(1);  // whoever changes it gets new sums
      const at::Tensor changed = kernels::cuda::column_sums(grad.x_mh);
      REQUIRE_FALSE(sums.is_same(changed));
      require_close(grad.x_mh.to(at::kDouble).sum(0), changed, tolerance, "changed");
    }
  }
}

TEST_CASE("GPU: sums of columns are given to gradients of any type", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const at::ScalarType kept : {dtype, at::kFloat}) {
      for (const Shape& shape : kGrid) {
        const at::Tensor x = on_gpu(normal_tensor(shape, "x", dtype));
        const at::Tensor before = normal_tensor({shape[1]}, "before", kept);
        const at::Tensor exact = x.cpu().to(at::kDouble).sum(0);
        const at::Tensor gradient = on_gpu(before);
        const double tolerance = kept == at::kFloat ? 1e-5 : step_of(kept);
        kernels::cuda::give_column_sums(gradient, x);
        require_close(exact.add(before.to(at::kDouble)), gradient, tolerance, "added");
        mark_unwritten(gradient);
        kernels::cuda::give_column_sums(gradient, x);
        require_close(exact, gradient, tolerance, "replaced");
        REQUIRE_FALSE(is_unwritten(gradient));
      }
    }
  }
}

TEST_CASE("GPU: the first product of a weight gradient replaces it", "[cuda][gradient]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType kept : {at::kBFloat16, at::kFloat}) {
    const at::Tensor g = on_gpu(normal_tensor({512, 64}, "g", at::kBFloat16));
    const at::Tensor x = on_gpu(normal_tensor({512, 96}, "x", at::kBFloat16));
    const at::Tensor exact = g.to(at::kDouble).t().matmul(x.to(at::kDouble));
    const at::Tensor gradient = at::full_like(exact.to(kept), std::nan(""));
    mark_unwritten(gradient);
    const double tolerance = kept == at::kFloat ? 1e-5 : step_of(kept);
    REQUIRE(kernels::cuda::add_weight_gradient(gradient, g, x));
    require_close(exact, gradient, tolerance, "replaced");
    REQUIRE(kernels::cuda::add_weight_gradient(gradient, g, x));
    require_close(exact.mul(2), gradient, tolerance, "added");
  }
}

}  // namespace colossal::test
