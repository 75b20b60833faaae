// How is anything measured that can be repeated? Warm-up, samples, and their median, least and
// spread.
#pragma once

#include "mesh/device_timer.hpp"

#include <functional>
#include <vector>

namespace colossal {

/// What one call took, over several samples.
struct Timing {
  double median = 0;  ///< seconds
  double least = 0;   ///< seconds
  double spread = 0;  ///< distance of the quartiles as a share of the median; 0 for one sample
  int samples = 0;
  int calls = 1;  ///< of each sample
};

/// How long to measure.
struct Sampling {
  double sample_seconds = 2e-3;  ///< shorter calls are repeated until a sample takes this long
  double total_seconds = 0.25;   ///< of all samples; there are 3 to 30 of them
  /// Ranks that call together must repeat equally often: the same number from the seconds that each
  /// has seen. Empty: this process is alone.
  std::function<double(double seconds)> agree = {};
};

/// Median, least and spread of samples of `calls` calls each; `seconds` are of single calls.
/// Errors: internal "no-samples" if there are none.
[[nodiscard]] Timing summarize(std::vector<double> seconds, int calls = 1);

/// Times `call` after two calls of warm-up.
[[nodiscard]] Timing measure(DeviceTimer& timer,
                             const std::function<void()>& call,
                             const Sampling& sampling = {});

}  // namespace colossal
