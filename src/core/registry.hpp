// How does a YAML word become an object? A constant table per family; an unknown word lists the
// known ones.
#pragma once

#include "core/error.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Constant table `name -> factory` of one family. Explicit tables survive static libraries, unlike
/// registrars.
template <class Base, class... Args>
class Registry {
 public:
  /// One line of the table.
  struct Entry {
    std::string_view name;
    std::function<std::unique_ptr<Base>(Args...)> make;
  };

  /// `yaml_path`: the key whose value chooses the entry, for the error text; must outlive this.
  Registry(std::string_view yaml_path, std::vector<Entry> entries)
      : yaml_path_(yaml_path), entries_(std::move(entries)) {}

  /// Makes the entry called `name`. Errors: config "unknown-name" listing all names.
  [[nodiscard]] std::unique_ptr<Base> make(std::string_view name, Args... args) const {
    for (const Entry& entry : entries_) {
      if (entry.name == name) {
        return entry.make(args...);
      }
    }
    std::string known;
    for (const Entry& entry : entries_) {
      known += known.empty() ? "" : ", ";
      known += entry.name;
    }
    fail(ErrorKind::config,
         "unknown-name",
         "{} = '{}' is not known; choose one of: {}",
         yaml_path_,
         name,
         known);
  }

  /// All names in the order of the table.
  [[nodiscard]] std::vector<std::string_view> names() const {
    std::vector<std::string_view> all;
    for (const Entry& entry : entries_) {
      all.push_back(entry.name);
    }
    return all;
  }

 private:
  std::string_view yaml_path_;
  std::vector<Entry> entries_;
};

}  // namespace colossal
