// Does attention equal ATen's for any length, heads and mask, in fp32 and fp64?
#include "nn/kernels/attention.hpp"

#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace colossal::test {
namespace {}  // namespace

TEST_CASE("attention equals ATen's for any length, heads and mask", "[kernels]") {
  struct Case {
    std::int64_t sequence;
    kernels::AttentionShape shape;
  };
  const std::vector<Case> cases = {{1, {2, 2, 16, true}},
                                   {5, {2, 1, 16, true}},
                                   {17, {4, 2, 32, true}},
                                   {17, {4, 2, 32, false}},
                                   {49, {2, 2, 48, true}},
                                   {100, {3, 1, 16, false}},
                                   {128, {4, 4, 32, true}},
                                   {30, {2, 2, 12, true}}};  // 12: not a multiple of 16
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [sequence, shape] : cases) {
      INFO("S " << sequence << ", heads " << shape.num_heads << "/" << shape.num_kv_heads << ", d "
                << shape.head_dim << ", causal " << shape.causal);
      const std::int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
      const Shape hidden = {2, sequence, shape.num_heads * shape.head_dim};
      const at::Tensor qkv = normal_tensor({2, sequence, width}, "qkv", dtype).mul(1.5);
      const at::Tensor grad = normal_tensor(hidden, "grad", dtype);
      const at::Tensor leaf = qkv.to(at::kDouble).clone().set_requires_grad(true);
      const kernels::QkvViews x = kernels::split_heads(leaf, shape);
      const at::Tensor expected =
          at::scaled_dot_product_attention(
              x.q, x.k, x.v, {}, 0.0, shape.causal, std::nullopt, /*enable_gqa=*/true)
              .transpose(1, 2)
              .flatten(2);
      expected.backward(grad.to(at::kDouble));
      const kernels::AttentionResult result = kernels::attention_forward(qkv, shape);
      const double tolerance = 2 * tolerance_of(dtype);
      require_close(expected, result.context_bsh, tolerance, "context");
      require_close(leaf.grad(),
                    kernels::attention_backward(grad, qkv, result, shape),
                    2 * tolerance,
                    "gradient of qkv");
    }
  }
}

TEST_CASE("attention is right for scores far from zero", "[kernels]") {
  const kernels::AttentionShape shape{1, 1, 16, true};
  const at::Tensor qkv = normal_tensor({1, 9, 48}, "qkv", at::kFloat).mul(30);
  const auto wide = kernels::attention_forward(qkv.to(at::kDouble), shape);
  require_close(
      wide.context_bsh, kernels::attention_forward(qkv, shape).context_bsh, 1e-4, "context");
}

}  // namespace colossal::test
