// How do numbers look to people? Formats of the console lines and the plan (config-and-cli 6.1,
// 10).
#pragma once

#include "core/text.hpp"

#include <cstdint>
#include <string>

namespace colossal {

/// Bytes.
inline constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30U;

/// Three or four significant digits with k, M, B, T = 10^3, 10^6, 10^9, 10^12: "124.4M", "182.4k",
/// "950".
[[nodiscard]] std::string human_count(double count);
/// Bytes in GiB with one decimal: "31.2 GiB".
[[nodiscard]] std::string human_gib(double bytes);
/// "3h44m", "12m05s", "48s".
[[nodiscard]] std::string human_duration(double seconds);

}  // namespace colossal
