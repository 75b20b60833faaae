// Are results of kernels independent of the number of threads?
#include "nn/kernels/activation.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/dropout.hpp"
#include "support/catch.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

namespace colossal::test {
TEST_CASE("kernels give the same on one thread and on two", "[kernels]") {
  const int threads = at::get_num_threads();
  const at::Tensor x = normal_tensor({512, 128}, "x", at::kFloat);
  const at::Tensor qkv = normal_tensor({8, 64, 96}, "qkv", at::kFloat);
  const kernels::DropoutKey key{3, 0, 5, 0.5};
  std::vector<at::Tensor> results[2];
  for (int n = 1; n <= 2; ++n) {
    at::set_num_threads(n);
    results[n - 1] = {
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
