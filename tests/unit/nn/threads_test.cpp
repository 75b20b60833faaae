// Are results of kernels independent of the number of threads?
#include "nn/kernels/activation.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"
#include "support/catch.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

namespace colossal::test {
TEST_CASE("kernels give the same on one thread and on two", "[kernels]") {
  const int threads = at::get_num_threads();
  const at::Tensor x = normal_tensor({512, 128}, "x", at::kFloat);
  const at::Tensor qkv = normal_tensor({8, 64, 96}, "qkv", at::kFloat);
  const at::Tensor weight = x.select(0, 1).contiguous();
  const at::Tensor labels = at::arange(512).remainder(120);
  const kernels::DropoutKey key{3, 0, 5, 0.5};
  std::vector<at::Tensor> results[2];
  for (int n = 1; n <= 2; ++n) {
    at::set_num_threads(n);
    const auto attended = kernels::attention_forward(qkv, {2, 2, 16, true});
    const auto normed = kernels::layer_norm_forward(x, weight, weight, 1e-5);
    at::Tensor logits = x.clone();
    (void)kernels::token_loss(logits, labels, 120, 1.0);
    results[n - 1] = {
        kernels::attention_backward(attended.context_bsh, qkv, attended, {2, 2, 16, true}),
        normed.y_mh,
        kernels::layer_norm_backward(x, {x, weight, normed.mean_m, normed.rstd_m}, x).x_mh,
        logits,
        kernels::dropout(x, x, key),
        kernels::bias_act_forward(x, x.select(0, 0).contiguous(), ActivationKind::gelu_tanh),
        kernels::attention_forward(qkv, {2, 2, 16, true}).context_bsh};
  }
  at::set_num_threads(threads);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    REQUIRE(at::equal(results[0][i], results[1][i]));
  }
}

}  // namespace colossal::test
