// How do numbers look to people, wherever they are shown?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace colossal {

/// Digits in groups of three: "19,074".
[[nodiscard]] std::string thousands(std::int64_t number);

/// A number of things: "1 rank", "19,074 ranks". `many`: their name if it is not `one` and an s.
[[nodiscard]] std::string counted(std::int64_t number,
                                  std::string_view one,
                                  std::string_view many = {});

/// Bytes of files, with decimal units: "1.5 GB", "820 B".
[[nodiscard]] std::string human_bytes(double bytes, int decimals = 1);

/// Bytes of memory, with binary units and one decimal: "820 B", "512.0 MiB", "31.2 GiB".
[[nodiscard]] std::string human_binary(double bytes);

}  // namespace colossal
