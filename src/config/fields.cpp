// How does a visitor keep its path?
#include "config/fields.hpp"

#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal::detail {

std::string PathVisitor::path_of(std::string_view key) const {
  return join_path(paths_.back(), key);
}

bool PathVisitor::enter(std::string_view key, bool present, const Spec& /*spec*/) {
  if (present || everything_) {
    paths_.push_back(path_of(key));
  }
  return present || everything_;
}

void PathVisitor::leave() {
  paths_.pop_back();
}

std::size_t PathVisitor::enter_list(std::string_view key, std::size_t size, const Spec& /*spec*/) {
  paths_.push_back(path_of(key));
  return everything_ ? std::max<std::size_t>(size, 1) : size;
}

bool PathVisitor::enter_item(std::size_t index) {
  paths_.push_back(fmt::format("{}[{}]", paths_.back(), index));
  return true;
}

void PathVisitor::leave_list() {
  paths_.pop_back();
}

}  // namespace colossal::detail
