// How do numbers look to people? Rounding and units only.
#include "train/human.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace colossal {
namespace {

struct Scaled {
  double value;
  std::size_t power;  // of 1000
};

/// `number` = value * 1000^power with value < 999.95, so that one decimal never shows "1000.0".
Scaled scale(double number) {
  Scaled scaled{number, 0};
  while (std::abs(scaled.value) >= 999.95 && scaled.power < 4) {
    scaled.value /= 1000;
    ++scaled.power;
  }
  return scaled;
}

}  // namespace

std::string human_count(double count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "k", "M", "B", "T"};
  const Scaled scaled = scale(count);
  return scaled.power == 0 ? fmt::format("{:.0f}", scaled.value)
                           : fmt::format("{:.1f}{}", scaled.value, kUnits[scaled.power]);
}

std::string human_gib(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / (1024.0 * 1024.0 * 1024.0));
}

std::string human_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (total >= 3600) {
    return fmt::format("{}h{:02}m", total / 3600, total % 3600 / 60);
  }
  if (total >= 60) {
    return fmt::format("{}m{:02}s", total / 60, total % 60);
  }
  return fmt::format("{}s", total);
}

}  // namespace colossal
