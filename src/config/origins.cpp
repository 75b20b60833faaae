// How is the place of a key found, also when nobody wrote it?
#include "config/origins.hpp"

#include <fmt/format.h>

namespace colossal::detail {
namespace {

Origin named(std::string file) {
  Origin origin;
  origin.file = std::move(file);
  return origin;
}

}  // namespace

void Origins::derive(std::string_view path, std::string_view rule) {
  values_[std::string(path)] = named(fmt::format("derived({})", rule));
}

bool Origins::given(std::string_view path) const {
  const auto it = values_.find(path);
  return it != values_.end() && !it->second.file.starts_with("derived(");
}

Origin Origins::of(std::string_view path) const {
  const auto it = values_.find(path);
  return it != values_.end() ? it->second : named("<default>");
}

Origin Origins::place_for(std::string_view path) const {
  if (given(path)) {
    return of(path);
  }
  while (true) {
    const std::size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
    const auto it = sections_.find(path);
    if (it != sections_.end() || path.empty()) {
      return it != sections_.end() ? it->second : named("<default>");
    }
  }
}

}  // namespace colossal::detail
