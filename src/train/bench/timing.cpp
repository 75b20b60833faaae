// How is anything measured that can be repeated?
#include "train/bench/timing.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace colossal {
namespace {

constexpr double kMinSamples = 3;
constexpr double kMaxSamples = 30;
constexpr double kMaxCalls = 10'000;

/// The value below which `share` of the sorted values lie, between two of them by their weight.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = place - static_cast<double>(below);
  return (1 - weight) * sorted[below] + weight * sorted[above];
}

double seconds_of(DeviceTimer& timer, const std::function<void()>& call, int calls) {
  timer.start();
  for (int i = 0; i < calls; ++i) {
    call();
  }
  return timer.stop() / calls;
}

}  // namespace

Timing summarize(std::vector<double> seconds, int calls) {
  check(!seconds.empty(), ErrorKind::internal, "no-samples", "a measurement without a sample");
  std::sort(seconds.begin(), seconds.end());
  const double median = quantile(seconds, 0.5);
  constexpr double kLower = 0.25;
  constexpr double kUpper = 0.75;
  const double distance = quantile(seconds, kUpper) - quantile(seconds, kLower);
  return {.median = median,
          .least = seconds.front(),
          .spread = median > 0 ? distance / median : 0,
          .samples = static_cast<int>(seconds.size()),
          .calls = calls};
}

Timing measure(DeviceTimer& timer, const std::function<void()>& call, const Sampling& sampling) {
  call();  // the first call loads code and takes memory
  double once = seconds_of(timer, call, 1);
  once = std::max(sampling.agree ? sampling.agree(once) : once, 1e-9);
  const double calls = std::clamp(std::ceil(sampling.sample_seconds / once), 1.0, kMaxCalls);
  const double samples =
      std::clamp(sampling.total_seconds / (once * calls), kMinSamples, kMaxSamples);
  std::vector<double> seconds;
  for (int i = 0; i < static_cast<int>(samples); ++i) {
    seconds.push_back(seconds_of(timer, call, static_cast<int>(calls)));
  }
  return summarize(std::move(seconds), static_cast<int>(calls));
}

}  // namespace colossal
