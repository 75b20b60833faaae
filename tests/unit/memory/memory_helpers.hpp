// What do the memory tests share? Parameter specs without a model, and the id of a thrown error.
#pragma once

#include "core/error.hpp"
#include "memory/store_options.hpp"
#include "mesh/layout.hpp"
#include "nn/parameter.hpp"
#include "support/catch.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// A replicated parameter with normal initial values.
inline ParamSpec spec_of(std::string name, Shape shape, std::string tied_to = "") {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.shape = shape;
  spec.padded = std::move(shape);
  spec.layout.replicated = data_axes() | axes({Axis::sp});
  spec.init = {.kind = InitSpec::Kind::normal, .std = 0.5};
  spec.tied_to = std::move(tied_to);
  return spec;
}

/// Options of a store in one dtype, whose parameters may go without a gradient.
inline StoreOptions plain_options(at::ScalarType dtype) {
  return {.compute = dtype,
          .master = dtype,
          .grad = dtype,
          .reduce = dtype,
          .state = dtype,
          .unused_is_zero = true};
}

/// Runs `action`, which must throw Error, and returns that error.
template <class Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("no error was thrown");
}

}  // namespace colossal::test
