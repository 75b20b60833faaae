// How do numbers look to people, wherever they are shown?
#pragma once

#include <cstdint>
#include <string>

namespace colossal {

/// Digits in groups of three: "19,074".
[[nodiscard]] std::string thousands(std::int64_t number);

}  // namespace colossal
