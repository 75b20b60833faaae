// Which examples does the program carry? The files of configs/, put in when it is built.
#pragma once

#include <span>
#include <string_view>

namespace colossal {

/// One file of configs/.
struct Example {
  std::string_view name;  ///< "tiny-cpu", "models/gpt-mini"
  std::string_view text;
};

/// All examples, by name.
[[nodiscard]] std::span<const Example> examples();

}  // namespace colossal
