// Do register tiles multiply like ATen, for any number of rows, read straight or transposed?
#include "nn/kernels/tile.hpp"

#include "support/catch.hpp"
#include "support/close.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/ops/matmul.h>

namespace colossal::test {

TEST_CASE("tiles equal a matrix product", "[kernels]") {
  for (std::int64_t rows = 1; rows <= 2 * kernels::kTileRows + 1; ++rows) {
    for (const std::int64_t depth : {1, 2, 17}) {
      for (const std::int64_t columns : {16, 48}) {
        const at::Tensor a = normal_tensor({rows, depth}, "a", at::kFloat);
        const at::Tensor a_transposed = a.t().contiguous();
        const at::Tensor b = normal_tensor({depth, columns}, "b", at::kFloat);
        const at::Tensor start = normal_tensor({rows, columns}, "c", at::kFloat);
        const at::Tensor product = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
        for (const bool transposed : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const kernels::MatrixView view =
                transposed ? kernels::MatrixView{a_transposed.const_data_ptr<float>(), 1, rows}
                           : kernels::MatrixView{a.const_data_ptr<float>(), depth, 1};
            const at::Tensor c = start.clone();
            kernels::multiply({view,
                               b.const_data_ptr<float>(),
                               columns,
                               depth,
                               c.mutable_data_ptr<float>(),
                               columns,
                               accumulate},
                              rows,
                              columns);
            INFO(rows << " x " << depth << " x " << columns << ", transposed " << transposed);
            require_close(
                accumulate ? product.add(start.to(at::kDouble)) : product, c, 1e-6, "product");
          }
        }
      }
    }
  }
}

TEST_CASE("tiles leave what lies beside their block alone", "[kernels]") {
  const at::Tensor a = normal_tensor({3, 2}, "a", at::kFloat);
  const at::Tensor b = normal_tensor({2, 16}, "b", at::kFloat);
  const at::Tensor c = normal_tensor({5, 40}, "c", at::kFloat);
  const at::Tensor before = c.clone();
  float* const inside = c.mutable_data_ptr<float>() + 40 + 8;  // rows 1-3, columns 8-23
  kernels::multiply(
      {{a.const_data_ptr<float>(), 2, 1}, b.const_data_ptr<float>(), 16, 2, inside, 40, false},
      3,
      16);
  const at::Tensor block = c.narrow(0, 1, 3).narrow(1, 8, 16);
  require_close(at::matmul(a, b), block, 1e-6, "block");
  before.narrow(0, 1, 3).narrow(1, 8, 16).copy_(block);
  REQUIRE(before.equal(c));
}

}  // namespace colossal::test
