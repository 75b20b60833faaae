// Are products of a few rows right, and is a row the same whatever stands beside it?
#include "nn/kernels/few_rows.hpp"

#include "nn/functions.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/one_thread.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>

namespace colossal::test {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble};

}  // namespace

TEST_CASE("few rows equal the general product", "[kernels]") {
  for (const at::ScalarType dtype : kTypes) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 16}) {
      for (const std::int64_t in : {1, 5, 8, 16, 31, 128, 200}) {
        const at::Tensor x = normal_tensor({rows, in}, "x", dtype);
        const at::Tensor weight = normal_tensor({9, in}, "weight", dtype);
        const at::Tensor bias = normal_tensor({9}, "bias", dtype);
        const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
        INFO(rows << " rows of " << in);
        require_close(at::linear(wide(x), wide(weight), wide(bias)),
                      kernels::linear_few_rows(x, weight, bias),
                      tolerance_of(dtype),
                      "with bias");
        require_close(at::linear(wide(x), wide(weight)),
                      kernels::linear_few_rows(x, weight, {}),
                      tolerance_of(dtype),
                      "without bias");
      }
    }
  }
}

TEST_CASE("a row alone has the bits of the same row among others", "[kernels]") {
  for (const at::ScalarType dtype : kTypes) {
    for (const std::int64_t in : {7, 32, 100}) {
      const at::Tensor x = normal_tensor({kernels::kFewRows, in}, "x", dtype);
      const at::Tensor weight = normal_tensor({37, in}, "weight", dtype);
      const at::Tensor bias = normal_tensor({37}, "bias", dtype);
      const at::Tensor together = kernels::linear_few_rows(x, weight, bias);
      for (std::int64_t row = 0; row < x.size(0); ++row) {
        const at::Tensor alone = kernels::linear_few_rows(x.narrow(0, row, 1), weight, bias);
        REQUIRE(at::equal(alone, together.narrow(0, row, 1)));
      }
    }
  }
}

TEST_CASE("few rows do not depend on the number of threads", "[kernels]") {
  const at::Tensor x = normal_tensor({3, 256}, "x", at::kFloat);
  const at::Tensor weight = normal_tensor({512, 256}, "weight", at::kFloat);
  at::set_num_threads(2);
  const at::Tensor two = kernels::linear_few_rows(x, weight, {});
  const OneThread one_thread;
  REQUIRE(at::equal(two, kernels::linear_few_rows(x, weight, {})));
}

TEST_CASE("a layer without autograd keeps few rows independent", "[functions]") {
  const at::NoGradGuard no_grad;
  const at::Tensor x = normal_tensor({5, 1, 48}, "x", at::kFloat);
  const at::Tensor weight = normal_tensor({64, 48}, "weight", at::kFloat);
  const at::Tensor bias = normal_tensor({64}, "bias", at::kFloat);
  for (const auto activation : {std::optional<ActivationKind>(),
                                std::optional(ActivationKind::gelu),
                                std::optional(ActivationKind::gelu_tanh),
                                std::optional(ActivationKind::relu)}) {
    const at::Tensor together = linear(x, weight, bias, activation);
    REQUIRE(together.sizes() == at::IntArrayRef({5, 1, 64}));
    for (std::int64_t row = 0; row < x.size(0); ++row) {
      const at::Tensor alone = linear(x.narrow(0, row, 1), weight, bias, activation);
      REQUIRE(at::equal(alone, together.narrow(0, row, 1)));
    }
    at::Tensor with_grad;
    {
      const at::AutoGradMode grad(true);
      with_grad = linear(x, weight, bias, activation);
    }
    require_close(with_grad, together, tolerance_of(at::kFloat), "with and without autograd");
  }
}

}  // namespace colossal::test
