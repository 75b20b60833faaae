// Does autograd agree with finite differences? For every differentiable function, in fp64.
#pragma once

#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/one_thread.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace colossal::test {

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// A fixed weighted sum of a function's result, so that every element of it matters.
inline at::Tensor weighted_sum(const at::Tensor& y) {
  at::Tensor weights = at::empty_like(y, y.options().requires_grad(false));
  for (std::int64_t i = 0; i < weights.numel(); ++i) {
    weights.mutable_data_ptr<double>()[i] = std::cos(1.0 + 0.7 * static_cast<double>(i));
  }
  return y.mul(weights).sum();
}

/// Compares the gradient of every fp64 input that requires one with central differences.
inline void check_gradients(const std::string& what,
                            const TensorFunction& function,
                            const std::vector<at::Tensor>& inputs,
                            double tolerance = 1e-7) {
  const OneThread one_thread;
  for (const at::Tensor& input : inputs) {
    input.mutable_grad() = at::Tensor();
  }
  weighted_sum(function(inputs)).backward();
  constexpr double kStep = 1e-5;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const at::Tensor& input = inputs[k];
    if (!input.requires_grad()) {
      continue;
    }
    at::NoGradGuard no_grad;
    REQUIRE(input.is_contiguous());
    at::Tensor numeric = at::empty_like(input, input.options().requires_grad(false));
    double* const x = static_cast<double*>(input.data_ptr());
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      const double kept = x[i];
      x[i] = kept + kStep;
      const double above = weighted_sum(function(inputs)).item<double>();
      x[i] = kept - kStep;
      const double below = weighted_sum(function(inputs)).item<double>();
      x[i] = kept;
      numeric.mutable_data_ptr<double>()[i] = (above - below) / (2 * kStep);
    }
    INFO(what << ", input " << k);
    REQUIRE(input.grad().defined());
    require_close(
        numeric, input.grad(), tolerance, what + ", gradient of input " + std::to_string(k));
  }
}

}  // namespace colossal::test
