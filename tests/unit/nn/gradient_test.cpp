// Does a gradient that nobody has written start anew, whoever writes it first?
#include "nn/gradient.hpp"

#include "support/catch.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cmath>

namespace colossal::test {
namespace {

/// A leaf whose gradient holds what must not be seen.
at::Tensor leaf_with_garbage() {
  at::Tensor leaf = at::ones({4}, at::kFloat).set_requires_grad(true);
  leaf.mutable_grad() = at::full({4}, std::nan(""), at::kFloat);
  zero_before_accumulating(leaf);
  mark_unwritten(leaf.grad());
  return leaf;
}

}  // namespace

TEST_CASE("a mark of an unwritten gradient goes with the first write of any kind", "[gradient]") {
  const at::Tensor gradient = at::ones({3}, at::kFloat);
  CHECK_FALSE(is_unwritten(gradient));
  mark_unwritten(gradient);
  CHECK(is_unwritten(gradient));
  gradient.add_(1);
  CHECK_FALSE(is_unwritten(gradient));
  mark_unwritten(gradient);
  count_write(gradient);
  CHECK_FALSE(is_unwritten(gradient));
  mark_unwritten(gradient);
  CHECK(is_unwritten(gradient));
}

TEST_CASE("what autograd adds first replaces the gradient, and adds from then on", "[gradient]") {
  const at::Tensor leaf = leaf_with_garbage();
  leaf.mul(3).sum().backward();
  CHECK(at::equal(leaf.grad(), at::full({4}, 3, at::kFloat)));
  leaf.mul(2).sum().backward();
  CHECK(at::equal(leaf.grad(), at::full({4}, 5, at::kFloat)));
  mark_unwritten(leaf.grad());
  leaf.mul(7).sum().backward();
  CHECK(at::equal(leaf.grad(), at::full({4}, 7, at::kFloat)));
}

TEST_CASE("a gradient of nothing leaves the mark", "[gradient]") {
  const at::Tensor leaf = leaf_with_garbage();
  const at::Tensor other = at::ones({4}, at::kFloat).set_requires_grad(true);
  other.mul(2).sum().backward();
  CHECK(is_unwritten(leaf.grad()));
}

TEST_CASE("kernels of a GPU write gradients of parameters on a GPU only", "[gradient]") {
  CHECK_FALSE(takes_gradient(leaf_with_garbage()));
  CHECK_FALSE(takes_gradient(at::ones({4}, at::kFloat)));
}

}  // namespace colossal::test
