// Do nonlinearities equal ATen's, for odd sizes and far from zero, in fp32 and fp64?
#include "nn/kernels/activation.hpp"

#include "core/error.hpp"
#include "nn/kernels/few_rows.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

namespace colossal::test {
namespace {

const std::vector<Shape> kSizes = {{1, 1}, {3, 5}, {7, 33}, {1, 129}, {300, 96}};

std::string_view gelu_word(ActivationKind kind) {
  return kind == ActivationKind::gelu ? "none" : "tanh";
}

at::Tensor reference_act(const at::Tensor& z, ActivationKind kind) {
  return kind == ActivationKind::relu ? at::relu(z) : at::gelu(z, gelu_word(kind));
}

at::Tensor reference_act_grad(const at::Tensor& g, const at::Tensor& z, ActivationKind kind) {
  return kind == ActivationKind::relu ? g.mul(z.gt(0)) : at::gelu_backward(g, z, gelu_word(kind));
}

}  // namespace

TEST_CASE("bias and activation equal ATen", "[kernels]") {
  for (const ActivationKind kind :
       {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu}) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const Shape& size : kSizes) {
        const at::Tensor pre = normal_tensor(size, "pre", dtype);
        const at::Tensor bias = normal_tensor({size[1]}, "bias", dtype);
        const at::Tensor grad = normal_tensor(size, "grad", dtype);
        const at::Tensor z = pre.add(bias);
        const double tolerance = tolerance_of(dtype);
        require_close(reference_act(z, kind),
                      kernels::bias_act_forward(pre, bias, kind),
                      tolerance,
                      "activation");
        const kernels::BiasActGrad result = kernels::bias_act_backward(grad, pre, bias, kind);
        const at::Tensor expected = reference_act_grad(grad, z, kind);
        require_close(expected, result.pre_mf, tolerance, "gradient before activation");
        require_close(expected.sum(0), result.bias_f, 10 * tolerance, "gradient of bias");
      }
    }
  }
}

TEST_CASE("activations stay finite and right far from zero", "[kernels]") {
  const at::Tensor far = at::linspace(-200, 200, 401, at::kFloat).view({1, 401});
  const at::Tensor bias = at::zeros({401});
  const at::Tensor ones = at::ones({1, 401});
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
    require_close(
        reference_act(far, kind), kernels::bias_act_forward(far, bias, kind), 1e-6, "far");
    require_close(reference_act_grad(ones, far, kind),
                  kernels::bias_act_backward(ones, far, bias, kind).pre_mf,
                  2e-6,
                  "far gradient");
  }
  REQUIRE(at::gelu(at::ones({1, 1}), "tanh").item<double>() == Approx(0.8411919906));
  REQUIRE(kernels::bias_act_forward(at::ones({1, 1}), at::zeros({1}), ActivationKind::gelu_tanh)
              .item<double>() == Approx(0.8411919906));
}

TEST_CASE("swiglu equals ATen", "[kernels]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const Shape& size : kSizes) {
      const at::Tensor gate = normal_tensor(size, "gate", dtype);
      const at::Tensor up = normal_tensor(size, "up", dtype);
      const at::Tensor grad = normal_tensor(size, "grad", dtype);
      const double tolerance = tolerance_of(dtype);
      require_close(at::silu(gate).mul(up), kernels::swiglu_forward(gate, up), tolerance, "swiglu");
      const kernels::SwigluGrad result = kernels::swiglu_backward(grad, gate, up);
      const at::Tensor s = at::sigmoid(gate);
      const at::Tensor slope = s.mul(gate.mul(s.neg().add(1)).add(1));
      require_close(grad.mul(up).mul(slope), result.gate, tolerance, "gate gradient");
      require_close(grad.mul(gate).mul(s), result.up, tolerance, "up gradient");
    }
  }
}

TEST_CASE("kernels refuse other dtypes", "[kernels]") {
  try {
    const at::Tensor whole = at::zeros({2, 2}, at::kLong);
    (void)kernels::swiglu_forward(whole, whole);
    FAIL("int64 was accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "kernel-dtype");
  }
}

TEST_CASE("kernels that know no 16 bits refuse them", "[kernels]") {
  try {
    const at::Tensor half = at::zeros({2, 2}, at::kHalf);
    (void)kernels::linear_few_rows(half, half, {});
    FAIL("fp16 was accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "kernel-dtype");
  }
}

}  // namespace colossal::test
