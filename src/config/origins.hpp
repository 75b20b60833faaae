// Where did each value come from? Filled while reading and deriving, asked by the rules.
#pragma once

#include "config/load.hpp"

#include <map>
#include <string>
#include <string_view>

namespace colossal::detail {

/// Origins by key path.
class Origins {
 public:
  /// Records who gave the value of a key (set) and where a mapping starts (set_section).
  void set(std::string path, Origin origin) { values_[std::move(path)] = std::move(origin); }
  void set_section(std::string path, Origin origin) {
    sections_[std::move(path)] = std::move(origin);
  }
  /// Records that a rule computed the value of `path`.
  void derive(std::string_view path, std::string_view rule);

  /// Whether the value was written by the user or filled by a preset.
  [[nodiscard]] bool given(std::string_view path) const;
  /// Origin of a value; "<default>" if nobody set it.
  [[nodiscard]] Origin of(std::string_view path) const;
  /// Where to point when `path` is at fault: its value, else the nearest section that exists in a
  /// file.
  [[nodiscard]] Origin place_for(std::string_view path) const;

  /// All recorded values by path.
  [[nodiscard]] const std::map<std::string, Origin, std::less<>>& values() const { return values_; }
  /// All recorded mappings by path.
  [[nodiscard]] const std::map<std::string, Origin, std::less<>>& sections() const {
    return sections_;
  }

 private:
  std::map<std::string, Origin, std::less<>> values_;
  std::map<std::string, Origin, std::less<>> sections_;
};

}  // namespace colossal::detail
