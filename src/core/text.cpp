// How are digits grouped, things counted and bytes scaled?
#include "core/text.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace colossal {

std::string thousands(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto place = static_cast<std::int64_t>(text.size()) - 3; place > (number < 0 ? 1 : 0);
       place -= 3) {
    text.insert(static_cast<std::size_t>(place), ",");
  }
  return text;
}

std::string counted(std::int64_t number, std::string_view one, std::string_view many) {
  const std::string several = many.empty() ? std::string(one) + "s" : std::string(many);
  return thousands(number) + " " + (number == 1 ? std::string(one) : several);
}

std::string human_bytes(double bytes, int decimals) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  if (std::abs(bytes) < 999.5) {
    return fmt::format("{:.0f} B", bytes);
  }
  const double last = 1000 - 0.5 * std::pow(10.0, -decimals);  // what is more rounds to 1000
  std::size_t unit = 1;
  double value = bytes / 1000;
  while (std::abs(value) >= last && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string human_binary(double bytes) {
  static constexpr std::array<std::string_view, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (std::abs(bytes) < 1023.5) {
    return fmt::format("{:.0f} B", bytes);
  }
  std::size_t unit = 0;
  double value = bytes / 1024;
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace colossal
