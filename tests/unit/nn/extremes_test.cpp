// What do activations make of numbers at the edge: infinite, no number, subnormal, huge, none?
#include "nn/kernels/activation.hpp"
#include "support/close.hpp"
#include "unit/nn/edge_numbers.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

namespace colossal::test {
namespace {

const std::vector<ActivationKind> kKinds = {
    ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu};

at::Tensor activated(double value, ActivationKind kind, at::ScalarType dtype) {
  return kernels::bias_act_forward(row_of(value, dtype), at::zeros({kWide}, dtype), kind);
}

at::Tensor slope_at(double value, ActivationKind kind, at::ScalarType dtype) {
  return kernels::bias_act_backward(
             row_of(1, dtype), row_of(value, dtype), at::zeros({kWide}, dtype), kind)
      .pre_mf;
}

}  // namespace

TEST_CASE("activations of infinite numbers and of none", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const ActivationKind kind : kKinds) {
      INFO(c10::toString(dtype) << " " << static_cast<int>(kind));
      require_all(activated(kNan, kind, dtype), kNan);
      require_all(activated(kInfinity, kind, dtype), kInfinity);
      require_all(activated(largest(dtype), kind, dtype), largest(dtype));
      require_all(activated(0, kind, dtype), 0);
      // Beyond, the square or the cube overflows and exp() ends at 1e-38, not at 0.
      const double far = kind == ActivationKind::relu ? largest(dtype) : 1e4;
      require_all(slope_at(far, kind, dtype), 1);
      require_all(slope_at(kNan, kind, dtype), kind == ActivationKind::relu ? 0 : kNan);
    }
    require_all(activated(-kInfinity, ActivationKind::relu, dtype), 0);
    require_all(activated(-largest(dtype), ActivationKind::relu, dtype), 0);
  }
}

TEST_CASE("a relu made a zero of what is no number", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    at::Tensor pre = normal_tensor({4, kWide}, "pre", dtype);
    pre.select(0, 2).fill_(kNan);
    const at::Tensor out =
        kernels::bias_act_forward(pre, at::zeros({kWide}, dtype), ActivationKind::relu);
    require_all(out.select(0, 2), kNan);
    CHECK(at::equal(out.narrow(0, 0, 2), pre.narrow(0, 0, 2).clamp_min(0)));
  }
}

TEST_CASE("a relu has no slope at zero and below", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    INFO(c10::toString(dtype));
    for (const double value : {0.0, -0.0, -smallest(dtype), -1.0, -kInfinity}) {
      require_all(slope_at(value, ActivationKind::relu, dtype), 0);
    }
    require_all(slope_at(smallest(dtype), ActivationKind::relu, dtype), 1);
    require_all(activated(smallest(dtype), ActivationKind::relu, dtype), smallest(dtype));
  }
}

TEST_CASE("a subnormal number is half of itself after a gelu", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
      const double tiny = 8 * smallest(dtype);
      INFO(c10::toString(dtype));
      require_all(activated(tiny, kind, dtype), tiny / 2);
      require_all(activated(-tiny, kind, dtype), -tiny / 2);
      require_close(row_of(0.5, dtype), slope_at(tiny, kind, dtype), 1e-6, "slope");
    }
  }
}

TEST_CASE("one bad element spoils no other, in a row or a column", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    for (const std::int64_t at : {0, 15, 31, 36}) {
      INFO(c10::toString(dtype) << " at " << at);
      at::Tensor pre = normal_tensor({3, kWide}, "pre", dtype);
      const at::Tensor bias = normal_tensor({kWide}, "bias", dtype);
      const at::Tensor grad = normal_tensor({3, kWide}, "grad", dtype);
      const auto clean = kernels::bias_act_backward(grad, pre, bias, ActivationKind::gelu);
      pre.select(0, 1).select(0, at).fill_(kNan);
      const auto spoiled = kernels::bias_act_backward(grad, pre, bias, ActivationKind::gelu);
      CHECK(spoiled.pre_mf.isnan().sum().item<std::int64_t>() == 1);
      CHECK(spoiled.bias_f.isnan().sum().item<std::int64_t>() == 1);
      CHECK(std::isnan(spoiled.bias_f[at].item<double>()));
      const at::Tensor others = at::arange(kWide).ne(at);
      CHECK(at::equal(spoiled.bias_f.masked_select(others), clean.bias_f.masked_select(others)));
      CHECK(at::equal(spoiled.pre_mf.select(0, 0), clean.pre_mf.select(0, 0)));
      CHECK(at::equal(spoiled.pre_mf.select(0, 2), clean.pre_mf.select(0, 2)));
    }
  }
}

TEST_CASE("swiglu saturates where its gate does", "[kernels][extremes]") {
  for (const at::ScalarType dtype : kAll) {
    INFO(c10::toString(dtype));
    const auto gated = [&](double gate, double up) {
      return kernels::swiglu_forward(row_of(gate, dtype), row_of(up, dtype));
    };
    require_all(gated(300, 2), 600);
    require_vanishing(gated(-30000, 2));
    require_all(gated(0, 5), 0);
    require_all(gated(kNan, 1), kNan);
    require_all(gated(1, kNan), kNan);
    require_all(gated(3, kInfinity), kInfinity);
    const auto grad =
        kernels::swiglu_backward(row_of(1, dtype), row_of(-30000, dtype), row_of(2, dtype));
    require_vanishing(grad.gate);
    require_vanishing(grad.up);
    const auto open =
        kernels::swiglu_backward(row_of(1, dtype), row_of(300, dtype), row_of(2, dtype));
    require_all(open.gate, 2);
    require_all(open.up, 300);
  }
}

}  // namespace colossal::test
