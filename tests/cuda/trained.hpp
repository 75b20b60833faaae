// When are two runs the same?
#pragma once

#include "support/close.hpp"
#include "support/gpu.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

#include <utility>

namespace colossal::test {

inline Config in(Config config, Precision precision) {
  config.train.precision = precision;
  return config;
}

inline Trained on_gpu(const Config& config) {
  return train(config, ParallelContext(config, kGpu));
}

inline Trained on_cpu(const Config& config) {
  return train(config, ParallelContext(config));
}

/// Losses, relatively, and which steps were skipped.
inline void check_losses(const Trained& expected, const Trained& got, double tolerance) {
  REQUIRE(got.reports.size() == expected.reports.size());
  for (std::size_t i = 0; i < got.reports.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(got.reports[i].skipped == expected.reports[i].skipped);
    require_relative(expected.reports[i].loss, got.reports[i].loss, tolerance, "loss");
  }
}

/// The same, and gradient norms ten times as loosely.
inline void check_losses_and_norms(const Trained& expected, const Trained& got, double tolerance) {
  check_losses(expected, got, tolerance);
  for (std::size_t i = 0; i < got.reports.size(); ++i) {
    INFO("step " << i + 1);
    require_relative(
        expected.reports[i].grad_norm, got.reports[i].grad_norm, 10 * tolerance, "norm");
  }
}

/// Every bit of losses, norms and weights.
inline void check_bits(const Trained& expected, const Trained& got) {
  REQUIRE(got.reports.size() == expected.reports.size());
  for (std::size_t i = 0; i < got.reports.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(got.reports[i].loss == expected.reports[i].loss);
    CHECK(got.reports[i].grad_norm == expected.reports[i].grad_norm);
    CHECK(got.reports[i].skipped == expected.reports[i].skipped);
  }
  for (const auto& [name, tensor] : expected.tensors) {
    INFO(name);
    CHECK(at::equal(tensor, got.tensors.at(name)));
  }
}

}  // namespace colossal::test
