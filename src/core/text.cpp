// How are digits grouped?
#include "core/text.hpp"

namespace colossal {

std::string thousands(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto place = static_cast<std::int64_t>(text.size()) - 3; place > (number < 0 ? 1 : 0);
       place -= 3) {
    text.insert(static_cast<std::size_t>(place), ",");
  }
  return text;
}

}  // namespace colossal
