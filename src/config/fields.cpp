// How does a visitor keep its path, and to which words of a section does a key belong?
#include "config/fields.hpp"

#include "config/scalar.hpp"
#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace colossal::detail {

std::string range_text(const Range& range) {
  const auto bound = [](double value) { return real_text(value); };
  const bool low = range.min > -std::numeric_limits<double>::infinity();
  const bool high = range.max < std::numeric_limits<double>::infinity();
  if (low && high) {
    return fmt::format("in {}{}, {}{}",
                       range.min_open ? '(' : '[',
                       bound(range.min),
                       bound(range.max),
                       range.max_open ? ')' : ']');
  }
  return low ? fmt::format("{} {}", range.min_open ? ">" : ">=", bound(range.min)) : "any number";
}

std::string join(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

bool among_words(std::string_view word, std::string_view list) {
  for (std::size_t start = 0; start < list.size();) {
    const std::size_t end = std::min(list.find(' ', start), list.size());
    if (list.substr(start, end - start) == word) {
      return true;
    }
    start = end + 1;
  }
  return false;
}

Selected selected_by(std::string_view key, const Slot& slot) {
  const auto& choice = std::get<EnumSlot>(slot);
  return {key, choice.words[*choice.value]};
}

bool variant_applies(const Spec& spec, std::string_view word) {
  return spec.variant.empty() || among_words(word, spec.variant);
}

std::string_view required_words(const Spec& spec) {
  return spec.required_for.empty() ? spec.variant : spec.required_for;
}

std::string either_word(std::string_view list) {
  std::string text(list);
  for (std::size_t space = text.find(' '); space != std::string::npos;
       space = text.find(' ', space + 4)) {
    text.replace(space, 1, " or ");
  }
  return text;
}

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
