// How does a test ask a GPU for bits that repeat, and stop asking?
#pragma once

#include "mesh/device.hpp"

#include <ATen/Context.h>

namespace colossal::test {

/// While it lives, results of the GPU repeat to the last bit.
class Deterministic {
 public:
  explicit Deterministic(at::Device device) { make_deterministic(device); }
  ~Deterministic() {
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicCuDNN(false);
  }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
};

}  // namespace colossal::test
