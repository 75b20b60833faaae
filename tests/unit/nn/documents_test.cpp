// Do documents that share a row stay apart in attention, forward and backward, on every path?
#include "core/batch.hpp"
#include "core/error.hpp"
#include "nn/functions.hpp"
#include "nn/layers.hpp"
#include "support/close.hpp"
#include "support/gradcheck.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

namespace colossal::test {
namespace {

/// "document_starts" of rows whose documents have these lengths.
at::Tensor starts_of(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<std::int64_t> starts;
  for (const auto& lengths : rows) {
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      starts.insert(starts.end(), static_cast<std::size_t>(length), begin);
      begin += length;
    }
  }
  const std::int64_t num_rows = std::ssize(rows);
  at::Tensor result = at::empty({num_rows, std::ssize(starts) / num_rows}, at::kLong);
  std::ranges::copy(starts, result.mutable_data_ptr<std::int64_t>());
  return result;
}

/// Which keys each query sees, [B,1,S,S]: itself and the earlier ones of its document.
at::Tensor seen(const at::Tensor& starts_bs) {
  const std::int64_t length = starts_bs.size(1);
  const at::Tensor past = at::ones({length, length}, at::kBool).tril();
  return at::arange(length).ge(starts_bs.unsqueeze(-1)).logical_and(past).unsqueeze(1);
}

struct Case {
  std::vector<std::vector<std::int64_t>> documents;  ///< lengths, row by row
  kernels::AttentionShape shape;
};

void check_case(const Case& one, at::ScalarType dtype) {
  const at::Tensor starts = starts_of(one.documents);
  const kernels::AttentionShape& shape = one.shape;
  const std::int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  const Shape hidden = {starts.size(0), starts.size(1), shape.num_heads * shape.head_dim};
  const at::Tensor qkv =
      normal_tensor({starts.size(0), starts.size(1), width}, "qkv", dtype).mul(1.5);
  const at::Tensor grad = normal_tensor(hidden, "grad", dtype);
  const at::Tensor leaf = qkv.to(at::kDouble).clone().set_requires_grad(true);
  const kernels::QkvViews x = kernels::split_heads(leaf, shape);
  const at::Tensor expected =
      at::scaled_dot_product_attention(
          x.q, x.k, x.v, seen(starts), 0.0, false, std::nullopt, /*enable_gqa=*/true)
          .transpose(1, 2)
          .flatten(2);
  expected.backward(grad.to(at::kDouble));
  const kernels::AttentionResult result = kernels::attention_forward(qkv, shape, starts);
  const double tolerance = 2 * tolerance_of(dtype);
  require_close(expected, result.context_bsh, tolerance, "context");
  require_close(leaf.grad(),
                kernels::attention_backward(grad, qkv, result, shape, starts),
                2 * tolerance,
                "gradient of qkv");
}

}  // namespace

TEST_CASE("attention within documents equals ATen's with a mask", "[kernels]") {
  const std::vector<Case> cases = {{{{1}}, {2, 2, 16, true}},
                                   {{{2, 3}, {4, 1}}, {2, 1, 16, true}},
                                   {{{1, 1, 1, 1}}, {2, 2, 16, true}},
                                   {{{17, 15, 17}, {49}, {1, 48}}, {4, 2, 32, true}},
                                   {{{16, 16, 96}, {100, 5, 23}, {40, 50, 38}}, {2, 2, 48, true}},
                                   {{{7, 20, 3}, {30}, {1, 28, 1}}, {2, 2, 12, true}}};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Case& one : cases) {
      INFO("S " << starts_of(one.documents).size(1) << ", d " << one.shape.head_dim);
      check_case(one, dtype);
    }
  }
}

TEST_CASE("one document a row is attention without documents, bit for bit", "[kernels]") {
  const kernels::AttentionShape shape{2, 2, 16, true};
  const at::Tensor qkv = normal_tensor({2, 50, 96}, "qkv", at::kFloat);
  const at::Tensor starts = starts_of({{50}, {50}});
  const auto plain = kernels::attention_forward(qkv, shape);
  const auto within = kernels::attention_forward(qkv, shape, starts);
  REQUIRE(scaled_distance(plain.context_bsh, within.context_bsh) == 0);
  const at::Tensor grad = normal_tensor({2, 50, 32}, "grad", at::kFloat);
  REQUIRE(scaled_distance(kernels::attention_backward(grad, qkv, plain, shape),
                          kernels::attention_backward(grad, qkv, within, shape, starts)) == 0);
}

TEST_CASE("gradients of attention within documents", "[functions]") {
  const at::Tensor starts = starts_of({{2, 3}, {1, 4}});
  check_gradients(
      "attention",
      [&](const std::vector<at::Tensor>& in) { return attention(in[0], {2, 1, 3, true}, starts); },
      {normal_leaf({2, 5, 12}, "qkv")});
}

TEST_CASE("the attention paths agree within documents", "[nn]") {
  Config config;
  config.train.precision = Precision::fp64;
  const ParallelContext context(config);
  const std::unique_ptr<LayerFactory> layers = serial_factory(context);
  const at::Tensor qkv = normal_tensor({2, 7, 8 * 6}, "qkv");
  Batch batch;
  batch.fields["document_starts"] = starts_of({{3, 4}, {1, 6}});
  const auto fast = layers->attention({"a", 4, 1, 8, true, 0, false});
  const auto math = layers->attention({"a", 4, 1, 8, true, 0, true});
  require_close(math->forward(qkv, batch), fast->forward(qkv, batch), 1e-13, "fused attention");
  REQUIRE(scaled_distance(math->forward(qkv, batch), math->forward(qkv, Batch{})) > 0.1);
}

TEST_CASE("documents need causal attention", "[kernels]") {
  try {
    (void)kernels::attention_forward(
        normal_tensor({1, 2, 48}, "qkv", at::kFloat), {1, 1, 16, false}, starts_of({{1, 1}}));
    FAIL("was accepted");
  } catch (const Error& error) {
    REQUIRE(error.id() == "attention-documents");
  }
}

}  // namespace colossal::test
