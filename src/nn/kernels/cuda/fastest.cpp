// How are ways to do the same work compared?
#include "nn/kernels/cuda/fastest.hpp"

#include "mesh/device_timer.hpp"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace colossal::kernels::cuda {

namespace {

constexpr int kTimedCalls = 5;
constexpr double kLong = 1e-4;   // seconds of a call that is worth a second look
constexpr double kClose = 1.12;  // times the best time
constexpr std::size_t kFinalists = 4;
constexpr double kHeatSeconds = 0.1;      // of work before the second look
constexpr double kStretchSeconds = 0.05;  // of a finalist, in each round
constexpr int kRounds = 2;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Way {
  int number = 0;
  double seconds = kNever;  // of a call
};

/// Seconds of a call, over `calls` of them.
double time_of(int number, int calls, const std::function<bool(int)>& run, DeviceTimer& timer) {
  timer.start();
  bool ran = true;
  for (int call = 0; call < calls; ++call) {
    ran = run(number) && ran;
  }
  const double seconds = timer.stop() / calls;
  return ran ? seconds : kNever;
}

int calls_in(double seconds, const Way& way) {
  return static_cast<int>(std::ceil(seconds / way.seconds));
}

/// The best of these on a busy card.
int best_when_busy(std::vector<Way> ways, const std::function<bool(int)>& run, DeviceTimer& timer) {
  (void)time_of(ways.front().number, calls_in(kHeatSeconds, ways.front()), run, timer);
  std::vector<Way> busy;
  for (const Way& way : ways) {
    busy.push_back({way.number, 0});
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      busy[i].seconds += time_of(ways[i].number, calls_in(kStretchSeconds, ways[i]), run, timer);
    }
  }
  return std::ranges::min_element(busy, {}, &Way::seconds)->number;
}

}  // namespace

int fastest(int count, const std::function<bool(int)>& run) {
  const std::unique_ptr<DeviceTimer> timer =
      make_device_timer(c10::cuda::getCurrentCUDAStream().device());
  std::vector<Way> ways;
  for (int i = 0; i < count; ++i) {
    const double seconds = run(i) ? time_of(i, kTimedCalls, run, *timer) : kNever;
    if (seconds < kNever) {
      ways.push_back({i, seconds});
    }
  }
  std::ranges::sort(ways, {}, &Way::seconds);
  if (ways.empty()) {
    return -1;
  }
  std::erase_if(
      ways, [best = ways.front().seconds](const Way& way) { return way.seconds > kClose * best; });
  ways.resize(std::min(ways.size(), kFinalists));
  if (ways.size() == 1 || ways.front().seconds < kLong) {
    return ways.front().number;
  }
  return best_when_busy(ways, run, *timer);
}

}  // namespace colossal::kernels::cuda
