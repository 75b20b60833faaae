// What does the registry say about each key, in words?
#pragma once

#include "config/load.hpp"

#include <string>
#include <vector>

namespace colossal::detail {

/// A key, or a section, as text.
struct KeyDoc {
  std::string path;
  bool section = false;
  std::string type;      ///< "count >= 1"
  std::string standard;  ///< "default 10", "default: num_heads", "required"
  std::string variant;   ///< "type text or tokens"; empty: always
  std::string help;
  std::vector<std::string> words;  ///< that the value may be, if they are few
  ResumeClass resume = ResumeClass::free;
};

/// All keys and sections in registry order.
[[nodiscard]] std::vector<KeyDoc> key_docs();

}  // namespace colossal::detail
