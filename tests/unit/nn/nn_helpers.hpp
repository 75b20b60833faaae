// Which inputs do the tests of layers and kernels share?
#pragma once

#include "mesh/random.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>
#include <vector>

namespace colossal::test {

/// Types whose kernels must agree with ATen up to rounding (tolerance_of).
inline const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kDouble};

/// Standard normal values that depend on `name` only; requires a gradient if asked.
inline at::Tensor normal_tensor(const Shape& shape,
                                const std::string& name,
                                at::ScalarType dtype = at::kDouble,
                                bool requires_grad = false) {
  at::Tensor x = at::empty(shape, at::dtype(dtype));
  const Region whole{Shape(shape.size(), 0), Shape(shape.size(), 0), shape};
  initialize(x, {InitSpec::Kind::normal, 1.0}, stream_key(17, name), shape, {&whole, 1});
  return x.set_requires_grad(requires_grad);
}

/// The same as a leaf that wants a gradient, fp64.
inline at::Tensor normal_leaf(const Shape& shape, const std::string& name) {
  return normal_tensor(shape, name, at::kDouble, true);
}

/// What a kernel may differ from its ATen reference by.
inline double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-6 : 1e-12;
}

}  // namespace colossal::test
